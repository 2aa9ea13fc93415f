/** Where the statements of a script begin and end: a semicolon ends one, unless it stands in quotes, in a comment or in a body of `$$`. */

export interface Part {
  from: number;
  /** Behind its last character, the semicolon included. */
  to: number;
  text: string;
}

const CLOSERS: [string, string][] = [
  ["--", "\n"],
  ["/*", "*/"],
  ["$$", "$$"],
  ["'", "'"],
  ['"', '"'],
  ["`", "`"],
];

export function statementsIn(script: string): Part[] {
  const parts: Part[] = [];
  let begin: number | null = null;
  let at = 0;
  const push = (end: number): void => {
    if (begin !== null) parts.push({ from: begin, to: end, text: script.slice(begin, end) });
    begin = null;
  };
  while (at < script.length) {
    const opened = CLOSERS.find(([open]) => script.startsWith(open, at));
    if (opened !== undefined) {
      const [open, close] = opened;
      const isComment = open === "--" || open === "/*";
      if (!isComment) begin ??= at;
      const end = script.indexOf(close, at + open.length);
      at = end < 0 ? script.length : end + close.length;
      continue;
    }
    const sign = script[at]!;
    at += 1;
    if (sign === ";") push(at);
    else if (begin === null && /\S/.test(sign)) begin = at - 1;
  }
  push(script.trimEnd().length);
  return parts;
}

/** The statement at a place of the script: the one around it, else the one before, else the first. */
export function statementAt(script: string, place: number): Part | null {
  const parts = statementsIn(script);
  return parts.find((part) => place <= part.to && place >= part.from) ?? parts.filter((part) => part.to <= place).at(-1) ?? parts[0] ?? null;
}
