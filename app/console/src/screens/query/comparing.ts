/** What two results differ in: rows by key, or records by what they hold. Pure; read page by page elsewhere. */

export type Values = Record<string, unknown>;

export interface Difference {
  /** `original`: only there; `fork`: only there; `both`: there with other values. */
  where: "original" | "fork" | "both";
  id: string;
  original: Values | null;
  fork: Values | null;
  /** Columns whose values differ. */
  columns: string[];
}

export interface Compared {
  equal: number;
  differences: Difference[];
  /** Rows that were looked at of each. */
  original: number;
  fork: number;
  /** There are more than were looked at. */
  isCut: boolean;
}

/** Compare rows, which both sides have in one order. Where either was cut off, what stands behind the last key that both have is left out. */
export function comparedRows(original: readonly Values[], fork: readonly Values[], key: readonly string[], columns: readonly string[], isCut: boolean): Compared {
  const idOf = (row: Values): string => JSON.stringify(key.map((name) => row[name] ?? null));
  let [first, second] = [original, fork];
  if (isCut) {
    const places = new Map(fork.map((row, at) => [idOf(row), at]));
    const last = original.findLastIndex((row) => places.has(idOf(row)));
    first = original.slice(0, last + 1);
    second = last < 0 ? [] : fork.slice(0, places.get(idOf(original[last]!))! + 1);
  }
  const others = new Map(second.map((row) => [idOf(row), row]));
  const differences: Difference[] = [];
  let equal = 0;
  for (const row of first) {
    const id = idOf(row);
    const other = others.get(id);
    others.delete(id);
    const differing = other === undefined ? [] : columns.filter((name) => !isSame(row[name], other[name]));
    if (other !== undefined && differing.length === 0) equal += 1;
    else differences.push({ where: other === undefined ? "original" : "both", id, original: row, fork: other ?? null, columns: differing });
  }
  for (const [id, row] of others) differences.push({ where: "fork", id, original: null, fork: row, columns: [] });
  return { equal, differences, original: first.length, fork: second.length, isCut };
}

/** Compare records by what they hold, however often each is there: the order of a result's records is not that of its fork. */
export function comparedRecords(original: readonly Values[], fork: readonly Values[], columns: readonly string[], isCut: boolean): Compared {
  const idOf = (record: Values): string => JSON.stringify([record["$event_time_ms"], record["$op"] ?? null, ...columns.map((name) => record[name] ?? null)]);
  const left = new Map<string, Values[]>();
  for (const record of fork) {
    const id = idOf(record);
    left.set(id, [...(left.get(id) ?? []), record]);
  }
  const differences: Difference[] = [];
  let equal = 0;
  original.forEach((record, at) => {
    const id = idOf(record);
    if (left.get(id)?.pop() !== undefined) equal += 1;
    else differences.push({ where: "original", id: `original ${at}`, original: record, fork: null, columns: [] });
  });
  let at = 0;
  for (const records of left.values()) for (const record of records) differences.push({ where: "fork", id: `fork ${at++}`, original: null, fork: record, columns: [] });
  return { equal, differences, original: original.length, fork: fork.length, isCut };
}

function isSame(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}
