/** The form of a source, and the statement that it stands for. The service says what the statement means, and what may surprise of it. */

export interface ColumnDraft {
  name: string;
  type: string;
  isKey: boolean;
}

export interface SourceDraft {
  kind: "stream" | "table";
  name: string;
  columns: ColumnDraft[];
  /** null: the time of arrival. */
  eventTime: string | null;
  /** Of an event time that is a number. */
  eventTimeUnit: "s" | "ms" | "us" | "ns";
  /** Of an event time that is a text: how it is written. */
  eventTimeFormat: string;
  partitions: number;
  /** Of tables: how long versions are kept, as `2d`; empty: the latest alone. */
  historyRetention: string;
  /** Of tables: keep the rows for reading. */
  materialize: boolean;
  /** How long records are kept, as `7d`; empty: for ever. */
  retention: string;
  onBadRecord: "reject" | "stop";
}

export const EMPTY_SOURCE: SourceDraft = {
  kind: "stream",
  name: "",
  columns: [],
  eventTime: null,
  eventTimeUnit: "ms",
  eventTimeFormat: "",
  partitions: 4,
  historyRetention: "",
  materialize: true,
  retention: "",
  onBadRecord: "reject",
};

const UNITS: Record<string, string> = { ms: "MILLISECONDS", s: "SECONDS", m: "MINUTES", h: "HOURS", d: "DAYS" };

/** Return the definition: the body of a PUT. What the form leaves open is left out, and the service spells it out. */
export function definitionOf(draft: SourceDraft): Record<string, unknown> {
  const time = draft.columns.find((column) => column.name === draft.eventTime);
  return {
    key: draft.columns.filter((column) => column.isKey).map((column) => column.name),
    columns: Object.fromEntries(draft.columns.map((column) => [column.name, column.type])),
    ...(time === undefined ? {} : { event_time: time.name }),
    ...(time?.type === "bigint" && draft.eventTimeUnit !== "ms" ? { event_time_unit: draft.eventTimeUnit } : {}),
    ...(time?.type === "int" ? { event_time_unit: "s" } : {}),
    ...(time?.type === "string" && draft.eventTimeFormat !== "" ? { event_time_format: draft.eventTimeFormat } : {}),
    ...(draft.kind === "table" && draft.historyRetention !== "" ? { versioned: { history_retention: draft.historyRetention } } : {}),
    ...(draft.kind === "table" && draft.materialize ? { materialize: true } : {}),
    connector: { type: "log", partitions: draft.partitions, ...(draft.retention === "" ? {} : { retention: draft.retention }) },
    ...(draft.onBadRecord === "stop" ? { on_bad_record: "stop" } : {}),
  };
}

/** Return the statement that means the same. */
export function statementOf(draft: SourceDraft): string {
  const keyWord = draft.kind === "table" ? " PRIMARY KEY" : " KEY";
  const columns = draft.columns.map((column) => `  ${quoted(column.name)} ${sqlType(column.type)}${column.isKey ? keyWord : ""}`);
  const history = draft.kind === "table" && draft.historyRetention !== "" ? ` HISTORY RETENTION ${sqlDuration(draft.historyRetention)}` : "";
  const properties: [string, string][] = [
    ["KAFKA_TOPIC", text(draft.name)],
    ["FORMAT", "'JSON'"],
    ["PARTITIONS", String(draft.partitions)],
  ];
  const time = draft.columns.find((column) => column.name === draft.eventTime);
  if (time !== undefined) {
    properties.push(["TIMESTAMP", text(`"${time.name}"`)]);
    if (time.type === "string") properties.push(["EVENT_TIME_FORMAT", text(draft.eventTimeFormat === "" ? RFC_3339 : draft.eventTimeFormat)]);
    if (time.type === "bigint") properties.push(["EVENT_TIME_UNIT", text(draft.eventTimeUnit)]);
    if (time.type === "int") properties.push(["EVENT_TIME_UNIT", "'s'"]);
  }
  if (draft.retention !== "") properties.push(["LOG_RETENTION", text(sqlDuration(draft.retention))]);
  if (draft.kind === "table" && draft.materialize) properties.push(["MATERIALIZE", "TRUE"]);
  if (draft.onBadRecord === "stop") properties.push(["ON_BAD_RECORD", "'STOP'"]);
  const withs = properties.map(([name, value]) => `${name} = ${value}`).join(", ");
  return `CREATE ${draft.kind.toUpperCase()} ${draft.name || "name"} (\n${columns.join(",\n")}\n)${history} WITH (${withs});`;
}

const RFC_3339 = "RFC 3339";

export function quoted(name: string): string {
  return `\`${name.replaceAll("`", "``")}\``;
}

function text(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** `2d` → `2 DAYS`. What is no duration stays, for the service to say so. */
export function sqlDuration(duration: string): string {
  const found = /^(\d+)(ms|s|m|h|d)$/.exec(duration.trim());
  return found === null ? duration : `${found[1]} ${UNITS[found[2]!]}`;
}

/** A type as statements write it: names of fields in quotes. */
export function sqlType(type: string): string {
  return type
    .replace(/\b(\w+)\s*:/g, (_, name: string) => `\`${name}\` `)
    .replace(/`[^`]*`|\w+/g, (word) => (word.startsWith("`") ? word : word.toUpperCase()))
    .replaceAll("INT", "INT");
}
