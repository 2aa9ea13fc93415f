/** Completion of statements: relations, their columns by alias, functions with what they take, keywords. */
import { snippetCompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import type { Functions, Relation } from "~/api/types";
import { statementAt } from "./splitting";
import { KEYWORDS, SNIPPETS, TYPES } from "./words";

export interface Known {
  relations: Relation[];
  functions: Functions | null;
}

interface Named {
  relation: Relation;
  /** As the statement calls it. */
  alias: string;
}

const PLAIN = /^[A-Z_][A-Z0-9_]*$/;
const WINDOW_COLUMNS: [string, string][] = [
  ["WINDOWSTART", "start of the window, in ms"],
  ["WINDOWEND", "end of the window, in ms"],
];

/** A column as statements write it: letters fold to upper case, so that others need quotes. */
export function written(column: string): string {
  return PLAIN.test(column) ? column : `\`${column.replaceAll("`", "``")}\``;
}

/** Which relations a statement reads, and under which names. */
export function namesIn(statement: string, relations: Relation[]): Named[] {
  const found: Named[] = [];
  const pattern = /\b(?:FROM|JOIN|INTO)\s+([`"]?)([A-Za-z_][\w$]*)\1(?:\s+(?:AS\s+)?([A-Za-z_]\w*))?/gi;
  for (const [, , name, alias] of statement.matchAll(pattern)) {
    const relation = relations.find((each) => each.name === name!.toLowerCase());
    if (relation === undefined) continue;
    const isAlias = alias !== undefined && !KEYWORDS.includes(alias.toUpperCase());
    found.push({ relation, alias: isAlias ? alias : name! });
  }
  return found;
}

export function completing(known: () => Known): (context: CompletionContext) => CompletionResult | null {
  return (context) => {
    const script = context.state.doc.toString();
    const statement = statementAt(script, context.pos)?.text ?? "";
    const { relations, functions } = known();
    const named = namesIn(statement, relations);

    const member = context.matchBefore(/[A-Za-z_]\w*\.[`]?\w*/);
    if (member !== null) {
      const [alias, begun] = member.text.split(".") as [string, string];
      const found = named.find((each) => each.alias.toUpperCase() === alias.toUpperCase());
      if (found === undefined) return null;
      const from = member.from + alias.length + 1;
      return { from, options: columnsOf(found.relation), validFor: begun.startsWith("`") ? /^`\w*$/ : /^\w*$/ };
    }
    const word = context.matchBefore(/[`\w]+/);
    if (word === null && !context.explicit) return null;
    const from = word?.from ?? context.pos;
    const before = script.slice(0, from);
    if (/\b(FROM|JOIN|INTO|DESCRIBE|PRINT)\s+$/i.test(before)) {
      return { from, options: relations.map((each) => relationOption(each, 2)), validFor: /^\w*$/ };
    }
    const columns = dedupe(named.flatMap((each) => columnsOf(each.relation, named.length > 1 ? each.alias : undefined)));
    return {
      from,
      options: [
        ...columns,
        ...relations.map((each) => relationOption(each, 0)),
        ...functionOptions(functions),
        ...KEYWORDS.map((each) => ({ label: each, type: "keyword", boost: -1 })),
        ...TYPES.map((each) => ({ label: each, type: "type", boost: -2 })),
        ...(/(^|;)\s*$/.test(before) ? SNIPPETS.map((each) => snippetCompletion(each.template, { label: each.label, detail: each.detail, type: "text", boost: 3 })) : []),
      ],
      validFor: /^`?\w*$/,
    };
  };
}

function columnsOf(relation: Relation, alias?: string): Completion[] {
  const isWindowed = relation.key.includes("window_start") && relation.key.includes("window_end");
  const own = Object.entries(relation.columns).filter(([name]) => !(isWindowed && (name === "window_start" || name === "window_end")));
  const windows = isWindowed ? WINDOW_COLUMNS : [];
  return [
    ...own.map(([name, type]) => {
      const isKey = relation.key.includes(name);
      const text = alias === undefined ? written(name) : `${alias}.${written(name)}`;
      return { label: name, apply: text, detail: isKey ? `${type} · key` : type, type: "property", boost: isKey ? 5 : 4 };
    }),
    ...windows.map(([name, detail]) => ({ label: name, apply: alias === undefined ? name : `${alias}.${name}`, detail, type: "property", boost: 3 })),
  ];
}

function relationOption(relation: Relation, boost: number): Completion {
  return { label: relation.name, detail: `${relation.kind}, ${Object.keys(relation.columns).length} columns`, type: "class", boost };
}

let shown: { of: Functions; options: Completion[] } | null = null;

function functionOptions(functions: Functions | null): Completion[] {
  if (functions === null) return [];
  if (shown?.of === functions) return shown.options;
  const scalars = functions.functions.flatMap((each) =>
    each.ksqldb.map((name) =>
      snippetCompletion(`${name}(\${})`, {
        label: name,
        detail: `(${each.arguments.map((one) => (one.optional ? `[${one.name}]` : one.name) + (one.repeated ? "…" : "")).join(", ")}) → ${each.result}`,
        info: each.description,
        type: "function",
      }),
    ),
  );
  const aggregates = functions.aggregates.map((each) =>
    snippetCompletion(`${each.name.toUpperCase()}(\${})`, {
      label: each.name.toUpperCase(),
      detail: `aggregate → ${each.result}`,
      info: each.description,
      type: "function",
    }),
  );
  shown = { of: functions, options: dedupe([...aggregates, ...scalars]) };
  return shown.options;
}

function dedupe(options: Completion[]): Completion[] {
  const seen = new Set<string>();
  return options.filter((each) => {
    const name = typeof each.apply === "string" ? each.apply : each.label;
    return !seen.has(name) && seen.add(name);
  });
}
