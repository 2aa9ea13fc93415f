/** The form of a query, and the definition that it stands for. */
import type { Relation } from "~/api/types";

export type Shape = "filter" | "join" | "windows" | "table";

export interface AggregateDraft {
  name: string;
  call: string;
}

export interface ItemDraft {
  name: string;
  expression: string;
}

export interface QueryDraft {
  shape: Shape;
  name: string;
  from: string;
  where: string;
  /** Where it begins to read: at the oldest record, behind the newest, or at an event time. */
  start: "earliest" | "latest" | "at";
  startAt: string;
  join: { table: string; type: "left" | "inner"; on: string; grace: string; late: "join" | "drop" | "divert" };
  /** Columns of the result; empty: all of them. */
  select: ItemDraft[];
  groupBy: string[];
  window: { type: "tumbling" | "hopping" | "session" | "sliding"; size: string; advance: string; grace: string };
  aggregates: AggregateDraft[];
  /** When results are given: once they are final, or with each change. */
  emit: "final" | "changes";
  /** Of filters over streams and joins: the result is a stream or a table. */
  into: "stream" | "table";
  versioned: string;
}

export const EMPTY_QUERY: QueryDraft = {
  shape: "windows",
  name: "",
  from: "",
  where: "",
  start: "earliest",
  startAt: "",
  join: { table: "", type: "left", on: "", grace: "1h", late: "join" },
  select: [],
  groupBy: [],
  window: { type: "tumbling", size: "1h", advance: "15m", grace: "10m" },
  aggregates: [{ name: "n", call: "count(*)" }],
  emit: "final",
  into: "stream",
  versioned: "",
};

export function definitionOf(draft: QueryDraft, relations: readonly Relation[]): Record<string, unknown> {
  const source = relations.find((each) => each.name === draft.from);
  const kind = source?.kind ?? "stream";
  const groups = draft.shape === "windows" || draft.shape === "table";
  const isTable = groups || (draft.shape === "filter" && kind === "table");
  return {
    name: draft.name,
    from: { [kind]: draft.from },
    ...(draft.where.trim() === "" ? {} : { where: draft.where.trim() }),
    ...(draft.start === "earliest" ? {} : { start: draft.start === "latest" ? "latest" : { at: draft.startAt.trim() } }),
    ...(draft.shape === "join"
      ? {
          joins: [
            {
              table: draft.join.table,
              type: draft.join.type,
              ...(draft.join.on.trim() === "" ? {} : { on: draft.join.on.trim() }),
              ...(draft.join.grace.trim() === "" ? {} : { grace: draft.join.grace.trim() }),
              ...(draft.join.late === "join" ? {} : { late: draft.join.late }),
            },
          ],
        }
      : {}),
    ...(groups ? { group_by: draft.groupBy } : {}),
    ...(draft.shape === "windows" ? { window: windowOf(draft.window) } : {}),
    ...(groups ? { aggregate: Object.fromEntries(draft.aggregates.filter((each) => each.name !== "" || each.call !== "").map((each) => [each.name, each.call])) } : {}),
    ...(!groups && draft.select.length > 0 ? { select: Object.fromEntries(draft.select.map((item) => [item.name, item.expression])) } : {}),
    ...(draft.shape === "windows" && draft.emit === "final" ? { suppress: { mode: "until_window_closes" } } : {}),
    into: {
      [isTable ? "table" : "stream"]: draft.name,
      ...(isTable && draft.versioned.trim() !== "" ? { versioned: { history_retention: draft.versioned.trim() } } : {}),
    },
  };
}

function windowOf(window: QueryDraft["window"]): Record<string, unknown> {
  const grace = window.grace.trim() === "" ? {} : { grace: window.grace.trim() };
  switch (window.type) {
    case "tumbling":
      return { type: "tumbling", size: window.size, ...grace };
    case "hopping":
      return { type: "hopping", size: window.size, advance: window.advance, ...grace };
    case "session":
      return { type: "session", gap: window.size, ...grace };
    case "sliding":
      return { type: "sliding", difference: window.size, ...grace };
  }
}

/** A name for a query of this shape, until the user gives one. */
export function suggestedName(draft: QueryDraft): string {
  if (draft.from === "") return "";
  const key = draft.groupBy[0];
  switch (draft.shape) {
    case "filter":
      return `${draft.from}_filtered`;
    case "join":
      return draft.join.table === "" ? "" : `${draft.from}_with_${draft.join.table}`;
    case "windows":
    case "table":
      return key === undefined ? `${draft.from}_totals` : `${draft.from}_by_${key.toLowerCase().replace(/[^a-z0-9_]/g, "_")}`;
  }
}

/** The condition of a join by equal names of the table's key, if the stream has such columns. */
export function suggestedOn(from: Relation | undefined, table: Relation | undefined): string {
  if (from === undefined || table === undefined) return "";
  const pairs = table.key.filter((name) => name in from.columns).map((name) => `${from.name}.${name} = ${table.name}.${name}`);
  return pairs.length === table.key.length ? pairs.join(" and ") : "";
}

/** Problems by the field of the form that they are about: the beginning of their pointers. */
export function problemsAt<T extends { pointer: string }>(problems: readonly T[], ...pointers: string[]): T[] {
  return problems.filter((each) => pointers.some((pointer) => each.pointer === pointer || each.pointer.startsWith(`${pointer}/`)));
}
