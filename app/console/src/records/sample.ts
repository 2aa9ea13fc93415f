/** Records as people have them, pasted or in a file: JSON, lines of JSON, CSV. Read here to be looked at before anything is sent. */

export type Value = unknown;
export type Rec = Record<string, Value>;

export type SampleForm = "json" | "ndjson" | "csv";

export interface Sample {
  form: SampleForm;
  /** Names in the order in which they first come. */
  names: string[];
  records: Rec[];
  /** Lines or places that are no records, with the reason. */
  faults: SampleFault[];
}

export interface SampleFault {
  /** Line of the text, or place in the array, from 1. */
  place: number;
  detail: string;
}

/** Faults that are kept: a file of the wrong kind has one in each line. */
const MOST_FAULTS = 20;

/** Types of columns by name. */
export type Types = Record<string, string>;

/**
 * Read a text. A text that is nothing of it gives no records and says why.
 *
 * @param types of columns, where they are known: a cell of CSV says only by its column's type whether `007` is a number.
 */
export function readSample(text: string, types: Types = {}): Sample {
  const trimmed = text.trim();
  if (trimmed === "") return { form: "json", names: [], records: [], faults: [] };
  if (trimmed.startsWith("[")) return fromArray(trimmed);
  if (trimmed.startsWith("{")) return fromObjects(trimmed);
  return fromCsv(text, types);
}

function fromArray(text: string): Sample {
  try {
    const parsed: unknown = parseJson(text);
    const items = Array.isArray(parsed) ? parsed : [parsed];
    return gathered("json", items.map((value, at) => ({ value, place: at + 1 })), []);
  } catch (error) {
    return { form: "json", names: [], records: [], faults: [{ place: 1, detail: reason(error) }] };
  }
}

function fromObjects(text: string): Sample {
  // One object over several lines is one record; else each line is.
  try {
    return gathered("json", [{ value: parseJson(text), place: 1 }], []);
  } catch {
    const found: { value: unknown; place: number }[] = [];
    const faults: SampleFault[] = [];
    text.split("\n").forEach((line, at) => {
      if (line.trim() === "") return;
      try {
        found.push({ value: parseJson(line), place: at + 1 });
      } catch (error) {
        faults.push({ place: at + 1, detail: reason(error) });
      }
    });
    return gathered("ndjson", found, faults);
  }
}

function gathered(form: SampleForm, found: { value: unknown; place: number }[], faults: SampleFault[]): Sample {
  const names = new Set<string>();
  const records: Rec[] = [];
  for (const { value, place } of found) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      faults.push({ place, detail: "not an object of columns" });
      continue;
    }
    for (const name of Object.keys(value)) if (!name.startsWith("$")) names.add(name);
    records.push(value as Rec);
  }
  return { form, names: [...names], records, faults: faults.slice(0, MOST_FAULTS) };
}

/** Whole numbers beyond 2^53 stay texts: the service takes them as such, and they keep their digits. */
function parseJson(text: string): unknown {
  return JSON.parse(text.replace(/("(?:[^"\\]|\\.)*")|(?<![\w.+-])-?\d{16,}(?![\d.eE])/g, (whole, quoted: string | undefined) =>
    quoted !== undefined || Number.isSafeInteger(Number(whole)) ? whole : `"${whole}"`,
  ));
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message.replace(/^JSON\.parse: /, "") : String(error);
}

function fromCsv(text: string, types: Types): Sample {
  const rows = csvRows(text, delimiterOf(text));
  const [head, ...body] = rows;
  if (head === undefined || head.length === 0) return { form: "csv", names: [], records: [], faults: [] };
  const names = head.map((name) => name.trim());
  const faults: SampleFault[] = [];
  if (names.length === 1 && body.length === 0) {
    faults.push({ place: 1, detail: "neither JSON nor CSV with a head line" });
    return { form: "csv", names: [], records: [], faults };
  }
  const records: Rec[] = [];
  body.forEach((cells, at) => {
    if (cells.length === 1 && cells[0] === "") return;
    if (cells.length !== names.length) {
      faults.push({ place: at + 2, detail: `${cells.length} values for ${names.length} columns` });
      return;
    }
    records.push(Object.fromEntries(names.map((name, column) => [name, csvValue(cells[column] ?? "", types[name])])));
  });
  return { form: "csv", names, records, faults: faults.slice(0, MOST_FAULTS) };
}

function delimiterOf(text: string): string {
  const line = text.slice(0, text.indexOf("\n") === -1 ? text.length : text.indexOf("\n"));
  const counts = [",", ";", "\t"].map((sign) => [line.split(sign).length, sign] as const);
  counts.sort((a, b) => b[0] - a[0]);
  return counts[0]?.[1] ?? ",";
}

/** Split a text as RFC 4180 has it: cells may be quoted, and hold delimiters and lines then. */
function csvRows(text: string, delimiter: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  const end = () => {
    row.push(cell);
    rows.push(row);
    row = [];
    cell = "";
  };
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === delimiter) {
      row.push(cell);
      cell = "";
    } else if (sign === "\n") end();
    else if (sign !== "\r") cell += sign;
  }
  if (cell !== "" || row.length > 0) end();
  return rows;
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** An empty cell is null; numbers and booleans are what they look like, but for numbers that would lose digits or zeros, and in columns of texts. */
function csvValue(cell: string, type: string | undefined): Value {
  const text = cell.trim();
  if (text === "" || text === "NULL" || text === "null" || text === "NA") return null;
  if (type === "string") return cell;
  if (text === "true" || text === "false") return text === "true";
  if (NUMBER.test(text)) {
    const value = Number(text);
    if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
  }
  return cell;
}
