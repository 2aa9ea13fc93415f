/** From a result to lines of a chart: which column runs along the bottom, which are drawn, and by which texts the rows are split. */
import type { Column } from "./running";

const NUMBERS = /^(int|bigint|double|decimal)/;
const TIMES = /^(timestamp|date)$/;
/** Whole numbers of these names are milliseconds since 1970. */
const MS_NAMES = /^(WINDOWSTART|WINDOWEND|ROWTIME|VALIDFROM|VALIDTO)$|_ms$/i;
export const MOST_LINES = 8;

export interface Plotable {
  /** Columns that can run along the bottom: times first. */
  bottoms: string[];
  /** Columns that can be drawn. */
  values: string[];
  /** Columns of texts with few values. */
  splits: string[];
}

export interface Line {
  name: string;
  /** null where a line has no value at this place. */
  values: (number | null)[];
}

export interface Plot {
  /** Seconds since 1970 where they are times, numbers, or places of `texts`. */
  places: number[];
  isTime: boolean;
  /** What stands below the places, where they are no numbers. */
  texts: string[] | null;
  lines: Line[];
  /** Lines beyond `MOST_LINES` are not drawn. */
  left: number;
}

export function isTime(column: Column): boolean {
  return TIMES.test(column.type) || (column.type === "bigint" && MS_NAMES.test(column.name));
}

export function plotable(columns: Column[], rows: unknown[][]): Plotable {
  const times = columns.filter(isTime);
  const numbers = columns.filter((column) => NUMBERS.test(column.type) && !isTime(column));
  const texts = columns.filter((column) => column.type === "string" || column.type === "boolean");
  const few = texts.filter((column) => new Set(rows.map((row) => row[columns.indexOf(column)])).size <= 60);
  return {
    bottoms: [...times, ...numbers.slice(0, numbers.length > 1 ? undefined : 0), ...few].map((column) => column.name),
    values: numbers.map((column) => column.name),
    splits: few.map((column) => column.name),
  };
}

export function plotOf(columns: Column[], rows: unknown[][], bottom: string, value: string, split: string | null): Plot {
  const at = (name: string): number => columns.findIndex((column) => column.name === name);
  const [b, v, s] = [at(bottom), at(value), split === null ? -1 : at(split)];
  const column = columns[b]!;
  const isTimes = isTime(column);
  const isNumber = !isTimes && NUMBERS.test(column.type);
  const texts: string[] | null = isTimes || isNumber ? null : [...new Set(rows.map((row) => String(row[b])))];
  const placeOf = (cell: unknown): number | null => {
    if (cell == null) return null;
    if (texts !== null) return texts.indexOf(String(cell));
    if (isTimes) return (typeof cell === "number" ? cell : Date.parse(String(cell))) / 1_000;
    return Number(cell);
  };
  const lines = new Map<string, Map<number, number>>();
  for (const row of rows) {
    const place = placeOf(row[b]);
    const number = row[v] == null ? null : Number(row[v]);
    if (place === null || number === null || Number.isNaN(place) || Number.isNaN(number)) continue;
    const name = s < 0 ? value : String(row[s]);
    if (!lines.has(name)) lines.set(name, new Map());
    lines.get(name)!.set(place, number);
  }
  const drawn = [...lines.entries()].slice(0, MOST_LINES);
  const places = [...new Set(drawn.flatMap(([, found]) => [...found.keys()]))].sort((one, other) => one - other);
  return {
    places,
    isTime: isTimes,
    texts,
    lines: drawn.map(([name, found]) => ({ name, values: places.map((place) => found.get(place) ?? null) })),
    left: lines.size - drawn.length,
  };
}
