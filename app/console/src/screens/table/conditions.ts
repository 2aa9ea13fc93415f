/** Conditions on rows, as the service reads them: `where.delay.ge=15`. */
import type { Values } from "~/api/client";

export const OPERATORS = [
  { word: "eq", sign: "=" },
  { word: "ne", sign: "≠" },
  { word: "gt", sign: ">" },
  { word: "ge", sign: "≥" },
  { word: "lt", sign: "<" },
  { word: "le", sign: "≤" },
  { word: "in", sign: "in" },
  { word: "null", sign: "is null" },
] as const;

export type Operator = (typeof OPERATORS)[number]["word"];

export interface Condition {
  column: string;
  operator: Operator;
  value: string;
}

export function signOf(operator: Operator): string {
  return OPERATORS.find((each) => each.word === operator)!.sign;
}

/** A condition in words: `origin = JFK`, `temp is not null`. */
export function shown(condition: Condition): string {
  if (condition.operator === "null") return `${condition.column} ${condition.value === "false" ? "is not null" : "is null"}`;
  return `${condition.column} ${signOf(condition.operator)} ${condition.value}`;
}

/** The parameters of a request. Conditions on keys are `key.…`, for which the service has an index. */
export function parametersOf(conditions: Condition[], key: string[]): Values {
  return Object.fromEntries(
    conditions.map(({ column, operator, value }) => [`${key.includes(column) ? "key" : "where"}.${column}.${operator}`, value]),
  );
}

/** Conditions as one text of the address, so that a filtered table can be linked to and kept. */
export function written(conditions: Condition[]): string | null {
  return conditions.length === 0 ? null : JSON.stringify(conditions.map(({ column, operator, value }) => [column, operator, value]));
}

export function readConditions(text: string | null): Condition[] {
  if (text === null) return [];
  try {
    const parsed = JSON.parse(text) as [string, string, string][];
    return parsed
      .filter(([column, operator, value]) => typeof column === "string" && typeof value === "string" && OPERATORS.some((each) => each.word === operator))
      .map(([column, operator, value]) => ({ column, operator: operator as Operator, value }));
  } catch {
    return [];
  }
}
