/** Values of records as people read them: the same on every screen. */
import type { ComponentChildren } from "preact";
import { moment } from "~/format";

/** Of columns whose numbers are milliseconds since 1970: they are shown as moments. */
export const INSTANT = "instant";
const NUMBERS = /^(int|bigint|double|decimal)/;

export function isNumeric(type: string | undefined): boolean {
  return type !== undefined && NUMBERS.test(type);
}

/** A value as one line of text. Numbers stay as they came: grouped digits could not be copied. */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function Cell({ value, type }: { value: unknown; type?: string }): ComponentChildren {
  if (value === null || value === undefined) return <span class="cell-null">null</span>;
  if (typeof value === "boolean") return <span class="cell-word">{String(value)}</span>;
  if (type === INSTANT && typeof value === "number") return moment(value);
  if (typeof value === "object") return <code>{JSON.stringify(value)}</code>;
  if (type === "timestamp") return String(value).replace("T", " ").replace(/(\.\d+?)0*Z$/, "$1Z").replace(/Z$/, "");
  return String(value);
}
