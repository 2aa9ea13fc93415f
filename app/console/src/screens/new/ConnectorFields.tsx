/** Where a source's records come from that are not sent over HTTP: a topic, or files. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import { everyPage } from "~/api/paths";
import type { ConnectionAnswer, ProblemItem } from "~/api/types";
import { Button, Panel } from "~/components/basics";
import { Link } from "~/router";
import { may } from "~/session";
import { Choose, Faults, Field, LongText, Text } from "./fields";
import { problemsAt } from "./query";
import { CHANGES, mayHaveRegistry, needsSchema, type ConnectorDraft, type SideDraft } from "./source";

type At = (...pointers: string[]) => ProblemItem[];

interface Props {
  draft: ConnectorDraft;
  kind: "stream" | "table";
  problems: readonly ProblemItem[];
  /** Null: the connector cannot be asked yet. */
  onFind: (() => void) | null;
  isFinding: boolean;
  set: (change: Partial<ConnectorDraft>) => void;
}

export function ConnectorFields({ draft, kind, problems, onFind, isFinding, set }: Props) {
  const at: At = (...pointers) => problemsAt(problems, ...pointers);
  return (
    <Panel
      id="connector"
      title={draft.type === "kafka" ? "The topic" : "The directory"}
      hint="Columns, and the key where the records say it, can be found in what is there."
      actions={
        <Button small icon="search" disabled={onFind === null || isFinding} onClick={() => onFind?.()}>
          {isFinding ? "Looking …" : "Find the columns"}
        </Button>
      }
    >
      <div class="new-fields">{draft.type === "kafka" ? <Topic draft={draft} kind={kind} at={at} set={set} /> : <Files draft={draft} at={at} set={set} />}</div>
    </Panel>
  );
}

function Files({ draft, at, set }: { draft: ConnectorDraft; at: At; set: Props["set"] }) {
  return (
    <>
      <Field label="Directory" hint="On the service's machine, below SLACKWATER_FILES_ROOT. Files appear in it whole." problems={at("/connector/path")}>
        <Text value={draft.path} mono placeholder="/data/orders" invalid={at("/connector/path").length > 0} onChange={(path) => set({ path })} />
      </Field>
      <Field label="They are written as" problems={at("/connector/format")}>
        <Choose
          value={draft.format}
          options={[
            ["ndjson", "lines of JSON"],
            ["csv", "CSV with a header"],
            ["parquet", "Parquet"],
          ]}
          onChange={(format) => set({ format })}
        />
      </Field>
    </>
  );
}

async function listConnections(signal: AbortSignal): Promise<ConnectionAnswer[]> {
  return await everyPage((cursor) => api.get("/v1/connections", { query: { cursor }, signal }));
}

function Topic({ draft, kind, at, set }: { draft: ConnectorDraft; kind: Props["kind"]; at: At; set: Props["set"] }) {
  const connections = useLive(listConnections, null, []);
  const of = (type: string): string[] => (connections.data ?? []).filter((each) => each.type === type).map((each) => each.name);
  const isChanges = draft.value.format === CHANGES;
  return (
    <>
      <Field
        label="Broker"
        problems={at("/connector/connection")}
        hint={connections.error !== null ? `Connections cannot be listed: ${connections.error.message}` : of("kafka").length > 0 ? undefined : <>No connection is stored. {may("admin") ? <Link to="/system?tab=connections">Make one</Link> : "An administrator makes one under System"}, where the broker asks for TLS or a login.</>}
      >
        <Choose label="Broker" value={draft.connection} options={[["", "by its address, without login"], ...of("kafka").map((name) => [name, `connection ${name}`] as const)]} onChange={(connection) => set({ connection })} />
      </Field>
      {draft.connection === "" && (
        <Field label="Addresses" hint="host:port, with commas between several" problems={at("/connector/bootstrap")}>
          <Text value={draft.bootstrap} mono placeholder="broker-1:9092" invalid={at("/connector/bootstrap").length > 0} onChange={(bootstrap) => set({ bootstrap })} />
        </Field>
      )}
      <Field label="Topic" problems={at("/connector/topic")}>
        <Text value={draft.topic} mono placeholder="orders" invalid={at("/connector/topic").length > 0} onChange={(topic) => set({ topic })} />
      </Field>
      <Field label="Values are written as" hint={isChanges ? "Each change has its row's key, and the time of its commit." : undefined} problems={at("/connector/value/format")}>
        <Choose label="Values are written as" value={draft.value.format} options={formats(kind, "values")} onChange={(format) => set({ value: { ...draft.value, format } })} />
      </Field>
      <Side side={draft.value} which="value" registries={of("registry")} at={at} onChange={(value) => set({ value })} />
      {!isChanges && (
        <>
          <Field label="Keys are written as" hint="They hold the columns of the key." problems={at("/connector/key/format")}>
            <Choose label="Keys are written as" value={draft.key.format} options={formats(kind, "keys")} onChange={(format) => set({ key: { ...draft.key, format } })} />
          </Field>
          <Side side={draft.key} which="key" registries={of("registry")} at={at} onChange={(key) => set({ key })} />
        </>
      )}
      <General at={at} />
    </>
  );
}

/** What is wrong with a side as a whole stands behind both. */
function General({ at }: { at: At }) {
  const found = ["/connector/key", "/connector/value", "/connector"].flatMap((pointer) => at(pointer).filter((problem) => problem.pointer === pointer));
  return <Faults problems={found} class="wide" />;
}

function formats(kind: "stream" | "table", side: "keys" | "values"): [string, string][] {
  return [
    ...(side === "keys" ? ([["", "not looked at"]] as [string, string][]) : []),
    ["kafka", "Kafka's own: one text, number or bytes"],
    ["json", "JSON"],
    ["json_lenient", "JSON, read as ksqlDB does"],
    ["avro", "Avro"],
    ["protobuf", "Protobuf"],
    ["delimited", "delimited text"],
    ["string", "one text"],
    ["bytes", "bytes"],
    ...(side === "values" && kind === "table" ? ([[CHANGES, "Debezium: changes of a database's table"]] as [string, string][]) : []),
    ...(side === "values" ? ([["", "not looked at"]] as [string, string][]) : []),
  ];
}

function Side({ side, which, registries, at, onChange }: { side: SideDraft; which: "key" | "value"; registries: string[]; at: At; onChange: (side: SideDraft) => void }) {
  const set = (change: Partial<SideDraft>): void => onChange({ ...side, ...change });
  const of = which === "key" ? "keys" : "values";
  const pointer = `/connector/${which}`;
  return (
    <>
      {side.format === CHANGES && (
        <>
          <Field label="Events are written as" problems={at(`${pointer}/encoding`)}>
            <Choose
              value={side.encoding}
              options={[
                ["json", "JSON"],
                ["avro", "Avro, with a registry"],
              ]}
              onChange={(encoding) => set({ encoding })}
            />
          </Field>
          {side.encoding === "json" && (
            <Field label="Decimals in events without a schema" problems={at(`${pointer}/decimals`)}>
              <Choose
                value={side.decimals}
                options={[
                  ["", "such events are refused"],
                  ["bytes", "bytes (decimal.handling.mode=precise)"],
                  ["text", "text (decimal.handling.mode=string)"],
                ]}
                onChange={(decimals) => set({ decimals })}
              />
            </Field>
          )}
        </>
      )}
      {mayHaveRegistry(side) && (registries.length > 0 || side.registry !== "") && (
        <Field label={`Registry of ${of}`} hint="It has the schemas that payloads name." problems={at(`${pointer}/registry`)}>
          <Choose label={`Registry of ${of}`} value={side.registry} options={[["", "none"], ...registries.map((name) => [name, name] as const)]} onChange={(registry) => set({ registry })} />
        </Field>
      )}
      {needsSchema(side) && (
        <Field label={`Schema of ${of}`} class="wide" hint={registries.length === 0 ? "Or let a registry have it: an administrator makes a connection to it." : undefined} problems={at(`${pointer}/schema`)}>
          <LongText label={`Schema of ${of}`} value={side.schema} placeholder={side.format === "avro" ? '{"type": "record", …}' : 'syntax = "proto3"; …'} onChange={(schema) => set({ schema })} />
        </Field>
      )}
      {side.format === "protobuf" && side.registry === "" && (
        <Field label={`Message of ${of}`} hint="Empty: the first of the schema" problems={at(`${pointer}/message`)}>
          <Text value={side.message} mono onChange={(message) => set({ message })} />
        </Field>
      )}
      {side.format === "delimited" && (
        <Field label={`Between columns of ${of}`} problems={at(`${pointer}/delimiter`)}>
          <Text value={side.delimiter} mono onChange={(delimiter) => set({ delimiter })} />
        </Field>
      )}
    </>
  );
}
