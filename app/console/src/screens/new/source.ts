/** The form of a source, and the definition that it stands for. The service says what the definition means in SQL, and what may surprise of it. */
import type { ProblemItem } from "~/api/types";

export interface ColumnDraft {
  name: string;
  type: string;
  isKey: boolean;
}

/** How keys, or values, of a topic are written; what the format has no use for is left out of the definition. */
export interface SideDraft {
  /** Empty: they are not looked at. */
  format: string;
  registry: string;
  schema: string;
  message: string;
  delimiter: string;
  /** Of change events. */
  encoding: "json" | "avro";
  decimals: "" | "bytes" | "text";
}

export type ConnectorType = "log" | "kafka" | "files";

export interface ConnectorDraft {
  type: ConnectorType;
  /** Of the built-in log. */
  partitions: number;
  /** How long records are kept, as `7d`; empty: for ever. */
  retention: string;
  feed: string;
  /** Of topics: the name of a connection; empty: brokers by their addresses. */
  connection: string;
  bootstrap: string;
  topic: string;
  key: SideDraft;
  value: SideDraft;
  onLost: "stop" | "skip";
  /** Of files. */
  path: string;
  format: "ndjson" | "csv" | "parquet";
  where: string;
  /** Further settings as JSON, for what has no field; empty: none. */
  further: string;
}

export interface SourceDraft {
  kind: "stream" | "table";
  name: string;
  columns: ColumnDraft[];
  /** null: the time of arrival, or what the connector says. */
  eventTime: string | null;
  /** Of an event time that is a number. */
  eventTimeUnit: "s" | "ms" | "us" | "ns";
  /** Of an event time that is a text: how it is written. */
  eventTimeFormat: string;
  connector: ConnectorDraft;
  /** Of tables: how long versions are kept, as `2d`; empty: the latest alone. */
  historyRetention: string;
  /** Of tables: keep the rows for reading. */
  materialize: boolean;
  onBadRecord: "reject" | "stop";
}

const NO_SIDE: SideDraft = { format: "", registry: "", schema: "", message: "", delimiter: ",", encoding: "json", decimals: "" };

export const EMPTY_SOURCE: SourceDraft = {
  kind: "stream",
  name: "",
  columns: [],
  eventTime: null,
  eventTimeUnit: "ms",
  eventTimeFormat: "",
  connector: {
    type: "log",
    partitions: 4,
    retention: "",
    feed: "",
    connection: "",
    bootstrap: "",
    topic: "",
    key: { ...NO_SIDE, format: "kafka" },
    value: { ...NO_SIDE, format: "json" },
    onLost: "stop",
    path: "",
    format: "ndjson",
    where: "",
    further: "",
  },
  historyRetention: "",
  materialize: true,
  onBadRecord: "reject",
};

export const CHANGES = "debezium";

/** Whether the records are changes of a database's table: these have their keys and their times in themselves. */
export function holdsChanges(draft: SourceDraft): boolean {
  return draft.connector.type === "kafka" && draft.connector.value.format === CHANGES;
}

/** Formats whose records a schema registry may describe. */
export function mayHaveRegistry(side: SideDraft): boolean {
  return ["json", "json_lenient", "avro", "protobuf"].includes(side.format) || side.format === CHANGES;
}

/** Formats that need a schema where no registry has it. */
export function needsSchema(side: SideDraft): boolean {
  return ["avro", "protobuf"].includes(side.format) && side.registry === "";
}

function sideOf(side: SideDraft): Record<string, unknown> | null {
  if (side.format === "") return null;
  const isChanges = side.format === CHANGES;
  return {
    format: side.format,
    ...(mayHaveRegistry(side) && side.registry !== "" ? { registry: side.registry } : {}),
    ...(needsSchema(side) && side.schema.trim() !== "" ? { schema: side.schema } : {}),
    ...(side.format === "protobuf" && side.registry === "" && side.message.trim() !== "" ? { message: side.message.trim() } : {}),
    ...(side.format === "delimited" && side.delimiter !== "," ? { delimiter: side.delimiter } : {}),
    ...(isChanges && side.encoding !== "json" ? { encoding: side.encoding } : {}),
    ...(isChanges && side.encoding === "json" && side.decimals !== "" ? { decimals: side.decimals } : {}),
  };
}

/** Read the further settings; a text where they cannot be read. */
export function furtherOf(draft: ConnectorDraft): Record<string, unknown> | string {
  if (draft.further.trim() === "") return {};
  try {
    const found: unknown = JSON.parse(draft.further);
    if (typeof found === "object" && found !== null && !Array.isArray(found)) return found as Record<string, unknown>;
  } catch {
    // told below
  }
  return 'Write an object of JSON, such as {"record_columns": {"trace": "header:traceparent"}}.';
}

function connectorOf(draft: ConnectorDraft): Record<string, unknown> {
  const where = draft.where.trim() === "" ? {} : { where: draft.where.trim() };
  const said = furtherOf(draft);
  const further = typeof said === "string" ? {} : said;
  switch (draft.type) {
    case "log":
      return { type: "log", partitions: draft.partitions, ...(draft.retention === "" ? {} : { retention: draft.retention }), ...(draft.feed.trim() === "" ? {} : { feed: draft.feed.trim() }), ...where, ...further };
    case "files":
      return { type: "files", path: draft.path.trim(), format: draft.format, ...where, ...further };
    case "kafka": {
      const isChanges = draft.value.format === CHANGES;
      const [key, value] = [isChanges ? null : sideOf(draft.key), sideOf(draft.value)];
      return {
        type: "kafka",
        ...(draft.connection === "" ? { bootstrap: draft.bootstrap.trim() } : { connection: draft.connection }),
        topic: draft.topic.trim(),
        ...(key === null ? {} : { key }),
        ...(value === null ? {} : { value }),
        ...(draft.onLost === "stop" ? {} : { on_lost: draft.onLost }),
        ...where,
        ...further,
      };
    }
  }
}

/** Return the definition: the body of a PUT. What the form leaves open is left out, and the service spells it out. */
export function definitionOf(draft: SourceDraft): Record<string, unknown> {
  const time = draft.columns.find((column) => column.name === draft.eventTime);
  return {
    key: keyOf(draft),
    columns: Object.fromEntries(draft.columns.map((column) => [column.name, column.type])),
    ...(time === undefined ? {} : { event_time: time.name }),
    ...(time?.type === "bigint" && draft.eventTimeUnit !== "ms" ? { event_time_unit: draft.eventTimeUnit } : {}),
    ...(time?.type === "int" ? { event_time_unit: "s" } : {}),
    ...(time?.type === "string" && draft.eventTimeFormat !== "" ? { event_time_format: draft.eventTimeFormat } : {}),
    ...(draft.kind === "table" && draft.historyRetention !== "" ? { versioned: { history_retention: draft.historyRetention } } : {}),
    ...(draft.kind === "table" && draft.materialize ? { materialize: true } : {}),
    connector: connectorOf(draft.connector),
    ...(draft.onBadRecord === "stop" ? { on_bad_record: "stop" } : {}),
  };
}

/** Return the definition that asks the connector for the columns: of what is declared only the key's names are kept. */
export function inferringOf(draft: SourceDraft): Record<string, unknown> {
  const key = keyOf(draft);
  return { ...(key.length === 0 ? {} : { key }), columns: "infer", connector: connectorOf(draft.connector) };
}

function keyOf(draft: SourceDraft): string[] {
  return draft.columns.filter((column) => column.isKey).map((column) => column.name);
}

/** Whether enough is said for the connector to be asked. */
export function isReachable(draft: ConnectorDraft): boolean {
  if (typeof furtherOf(draft) === "string") return false;
  if (draft.type === "files") return draft.path.trim() !== "";
  return draft.type === "log" || (draft.topic.trim() !== "" && (draft.connection !== "" || draft.bootstrap.trim() !== ""));
}

/** What the form itself knows to be missing: the service is not asked before. */
export function openParts(draft: SourceDraft, taken: readonly string[]): ProblemItem[] {
  const { connector } = draft;
  const found: [string, string][] = [];
  if (draft.name === "") found.push(["/name", "Give it a name."]);
  else if (!/^[a-z][a-z0-9_]{0,62}$/.test(draft.name)) found.push(["/name", "A name has lower case letters, digits and _, and begins with a letter."]);
  else if (taken.includes(draft.name)) found.push(["/name", `There is a stream or table ${draft.name} already.`]);
  if (connector.type === "kafka" && connector.connection === "" && connector.bootstrap.trim() === "") found.push(["/connector/bootstrap", "Where is the broker? Choose a connection, or write host:port."]);
  if (connector.type === "kafka" && connector.topic.trim() === "") found.push(["/connector/topic", "Which topic has the records?"]);
  if (connector.type === "files" && connector.path.trim() === "") found.push(["/connector/path", "Which directory has the files?"]);
  const further = furtherOf(connector);
  if (typeof further === "string") found.push(["/connector/further", further]);
  if (draft.columns.length === 0) found.push(["/columns", connector.type === "log" ? "It needs a column at least." : "It needs columns: let them be found, or add them."]);
  if (draft.columns.some((column) => column.name.trim() === "")) found.push(["/columns", "A column has no name."]);
  if (draft.kind === "table" && draft.columns.length > 0 && !draft.columns.some((column) => column.isKey)) found.push(["/key", "A table needs a key: which columns tell its rows apart?"]);
  return found.map(([pointer, detail]) => ({ pointer, detail, code: "missing" as ProblemItem["code"] }));
}

/** Put a statement of a source on several lines: a column each, and its properties apart. */
export function brokenSource(sql: string): string {
  let depth = 0;
  return sql
    .split(/('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)/)
    .map((part, index) => {
      if (index % 2) return part;
      return part.replace(/[()]|, | (?=WITH \()/g, (mark) => {
        if (mark === "(" && ++depth === 1) return "(\n  ";
        if (mark === ")" && depth-- === 1) return "\n)";
        if (mark === ", " && depth === 1) return ",\n  ";
        return mark;
      });
    })
    .join("");
}
