/** Columns that a sample suggests. They are a proposal: the form shows them, and each can be changed. */

import type { Rec, Sample, Value } from "./sample";

export interface Suggested {
  name: string;
  type: string;
  /** It is in every record, and never null. */
  always: boolean;
  /** A value, to look at. */
  example: Value;
}

const INSTANT = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$/;
const DATE = /^\d{4}-\d{2}-\d{2}$/;
const MOST_INT = 2 ** 31 - 1;

/** Propose a type for every name of a sample. */
export function suggestColumns(sample: Sample): Suggested[] {
  return sample.names.map((name) => {
    const values = sample.records.map((record) => record[name]);
    const there = values.filter((value) => value !== null && value !== undefined);
    return { name, type: typeOf(there), always: there.length === values.length, example: there[0] ?? null };
  });
}

/** Return the type that holds all of some values, none of them null. */
export function typeOf(values: Value[]): string {
  if (values.length === 0) return "string";
  if (values.every((value) => typeof value === "boolean")) return "boolean";
  if (values.every((value) => typeof value === "number")) return numberType(values as number[]);
  if (values.every((value) => Array.isArray(value))) return `array<${typeOf((values as Value[][]).flat().filter(isThere))}>`;
  if (values.every((value) => typeof value === "object")) return structType(values as Rec[]);
  if (values.every((value) => typeof value === "string")) return textType(values as string[]);
  // Whole numbers beyond 2^53 came as texts beside others that are none.
  if (values.every((value) => typeof value === "number" || (typeof value === "string" && /^-?\d{16,19}$/.test(value)))) return "bigint";
  return "string";
}

function isThere(value: Value): boolean {
  return value !== null && value !== undefined;
}

function numberType(values: number[]): string {
  if (!values.every(Number.isInteger)) return "double";
  return values.every((value) => Math.abs(value) <= MOST_INT) ? "int" : "bigint";
}

function textType(values: string[]): string {
  if (values.every((value) => INSTANT.test(value))) return "timestamp";
  if (values.every((value) => DATE.test(value))) return "date";
  return values.every((value) => /^-?\d{16,19}$/.test(value)) ? "bigint" : "string";
}

function structType(values: Rec[]): string {
  const names = [...new Set(values.flatMap((value) => Object.keys(value)))];
  if (names.length === 0) return "map<string,string>";
  const fields = names.map((name) => `${name}:${typeOf(values.map((value) => value[name]).filter(isThere))}`);
  return `struct<${fields.join(",")}>`;
}

/** The column that most likely says when: a timestamp, or a number that looks like milliseconds or seconds since 1970. */
export function suggestEventTime(columns: Suggested[]): string | null {
  const times = columns.filter((column) => column.always && (column.type === "timestamp" || isEpoch(column)));
  const named = times.find((column) => /(^|_)(at|ts|time|timestamp|date)$|time/i.test(column.name));
  return (named ?? times[0])?.name ?? null;
}

function isEpoch(column: Suggested): boolean {
  if (column.type !== "bigint" || typeof column.example !== "number") return false;
  return column.example > 1e11 && column.example < 1e13;
}

/** The columns that most likely tell records apart: an id, else the first text that is always there. */
export function suggestKey(columns: Suggested[]): string[] {
  const possible = columns.filter((column) => column.always && ["string", "int", "bigint"].includes(column.type));
  const id = possible.find((column) => /^(id|key|uuid|code)$/i.test(column.name)) ?? possible.find((column) => /(_id|Id|_key|_code)$/.test(column.name));
  const first = id ?? possible.find((column) => column.type === "string");
  return first === undefined ? [] : [first.name];
}
