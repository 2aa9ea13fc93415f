/** SQL and JSON to read, with their words coloured. An editor is CodeMirror's (see the screen SQL). */
import { useMemo } from "preact/hooks";

const SQL =
  /(--[^\n]*)|('(?:[^']|'')*')|(`[^`]*`)|\b(\d+(?:\.\d+)?)\b|\b(CREATE|OR|REPLACE|STREAM|TABLE|WITH|AS|SELECT|FROM|LEFT|RIGHT|FULL|INNER|OUTER|JOIN|ON|WITHIN|GRACE|PERIOD|WHERE|GROUP|BY|HAVING|WINDOW|TUMBLING|HOPPING|SESSION|SLIDING|SIZE|ADVANCE|RETENTION|EMIT|FINAL|CHANGES|AND|NOT|IN|IS|NULL|CASE|WHEN|THEN|ELSE|END|LIKE|BETWEEN|CAST|DISTINCT|INTO|INSERT|VALUES|PRIMARY|KEY|DAYS?|HOURS?|MINUTES?|SECONDS?|MILLISECONDS?|WAIT)\b/gi;
const JSON_TEXT = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b/g;

export function Code({ text, language, label }: { text: string; language: "sql" | "json"; label: string }) {
  const parts = useMemo(() => (language === "sql" ? sqlParts(text) : jsonParts(text)), [text, language]);
  return (
    <pre class="code" tabIndex={0} aria-label={label}>
      {parts.map(([kind, part], index) => (kind ? <span key={index} class={kind}>{part}</span> : part))}
    </pre>
  );
}

type Part = [kind: string | null, text: string];

function sqlParts(text: string): Part[] {
  return cut(text, SQL, (match) => (match[1] ? "p" : match[2] ? "s" : match[3] ? null : match[4] ? "n" : "k"));
}

function jsonParts(text: string): Part[] {
  return cut(text, JSON_TEXT, (match) => (match[1] ? (match[2] ? "k" : "s") : "n"));
}

function cut(text: string, pattern: RegExp, kindOf: (match: RegExpExecArray) => string | null): Part[] {
  const parts: Part[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) parts.push([null, text.slice(end, match.index)]);
    parts.push([kindOf(match as RegExpExecArray), match[0]]);
    end = match.index + match[0].length;
  }
  parts.push([null, text.slice(end)]);
  return parts;
}

/** Put a statement that is one line on several, at its clauses; texts in quotes stay as they are. */
export function brokenSql(sql: string): string {
  return sql
    .split(/('(?:[^']|'')*'|`[^`]*`)/)
    .map((part, index) => (index % 2 ? part : part.replace(/ (SELECT|FROM|(?:LEFT |RIGHT |FULL |INNER )?(?:OUTER )?JOIN|WHERE|WINDOW|GROUP BY|HAVING|EMIT) /g, "\n$1 ").replace(/ (EMIT \w+)$/, "\n$1")))
    .join("");
}
