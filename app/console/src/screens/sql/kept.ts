/** What the SQL screen remembers in this browser: the script that is open, and what was run. Nothing of it leaves the browser. */
import { statementsIn } from "./splitting";

const SCRIPT = "slackwater.sql.script";
const HISTORY = "slackwater.sql.history";
const MOST = 200;
const MOST_CHARS = 20_000;

export interface Ran {
  sql: string;
  at: number;
  ms: number;
  outcome: "done" | "failed" | "stopped";
  /** What came of it, in a few words. */
  note: string;
}

export function keptScript(): string | null {
  return localStorage.getItem(SCRIPT);
}

export function keepScript(text: string): void {
  keep(SCRIPT, text);
}

export function history(): Ran[] {
  try {
    const found = JSON.parse(localStorage.getItem(HISTORY) ?? "[]") as Ran[];
    return Array.isArray(found) ? found.filter((each) => typeof each.sql === "string") : [];
  } catch {
    return [];
  }
}

/** Statements that are wrong once they were carried out: their name is taken then, or gone. */
const DONE_ONCE = /^(CREATE|DROP|ALTER|INSERT|TERMINATE)\b/i;

/**
 * Return a script in which what was carried out as it stands is blank, each character in its place. What is blank is not judged again: a
 * CREATE that was run would be marked for its own name, and hide what is wrong behind it.
 */
export function withoutDone(script: string): string {
  const parts = statementsIn(script).filter((part) => DONE_ONCE.test(part.text));
  if (parts.length === 0) return script;
  const done = new Set(history().filter((ran) => ran.outcome === "done").flatMap((ran) => statementsIn(ran.sql)).map((part) => bare(part.text)));
  return parts
    .filter((part) => done.has(bare(part.text)))
    .reduce((text, part) => text.slice(0, part.from) + part.text.replace(/[^\n]/g, " ") + text.slice(part.to), script);
}

function bare(statement: string): string {
  return statement.replace(/;$/, "").trim();
}

/** Add what was run, the newest first. The same text again takes the place of the one before. */
export function remember(ran: Ran): Ran[] {
  if (ran.sql.length > MOST_CHARS) return history();
  const all = [ran, ...history().filter((each) => each.sql !== ran.sql)].slice(0, MOST);
  keep(HISTORY, JSON.stringify(all));
  return all;
}

export function forgetHistory(): void {
  localStorage.removeItem(HISTORY);
}

/** Forget the script as well: whoever signs out leaves nothing for who comes next. */
export function forgetAll(): void {
  localStorage.removeItem(SCRIPT);
  forgetHistory();
}

function keep(name: string, text: string): void {
  try {
    localStorage.setItem(name, text);
  } catch {
    // The browser's storage is full or forbidden: the console works without a memory.
  }
}
