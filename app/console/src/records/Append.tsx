/** Append records to a source: paste them or drop a file, look at what was understood, send. */
import { useMemo, useRef, useState } from "preact/hooks";
import type { Relation } from "~/api/types";
import { isAborted } from "~/api/client";
import { Button, Note, Panel } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { count, plural, words } from "~/format";
import { append, type Sent } from "./appending";
import { readSample } from "./sample";
import { SampleInput } from "./SampleInput";
import { RowGrid } from "./RowGrid";

const SHOWN = 200;

export function Append({ relation, onAppended }: { relation: Relation; onAppended?: () => void }) {
  const [text, setText] = useState("");
  const [done, setDone] = useState<Sent | null>(null);
  const [total, setTotal] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  const [isSending, setSending] = useState(false);
  const ending = useRef<AbortController | null>(null);
  const sample = useMemo(() => readSample(text, relation.columns), [text, relation.columns]);
  const declared = Object.keys(relation.columns);
  const unknown = sample.names.filter((name) => !declared.includes(name));
  const missing = declared.filter((name) => !sample.names.includes(name));
  const columns = [
    ...declared.filter((name) => sample.names.includes(name)).map((name) => ({ name, type: relation.columns[name], isKey: relation.key.includes(name) })),
    ...unknown.map((name) => ({ name })),
  ];

  const sendAll = async (): Promise<void> => {
    setSending(true);
    setError(null);
    setDone(null);
    setTotal(sample.records.length);
    ending.current = new AbortController();
    try {
      await append(relation.kind, relation.name, sample.records, ending.current.signal, setDone);
      onAppended?.();
    } catch (failure) {
      if (!isAborted(failure)) setError(failure as Error);
    } finally {
      setSending(false);
    }
  };

  return (
    <div class="stack">
      <Panel id="append" title="Records to append" hint={relation.kind === "table" ? 'A record with "$op": "delete" and its key deletes the row.' : `Each record has the columns of ${relation.name}.`}>
        <div class="stack">
          <SampleInput
            label="Records"
            text={text}
            sample={sample}
            onText={(found) => {
              setText(found);
              setDone(null);
              setError(null);
            }}
          />
          {sample.faults.length > 0 && (
            <Note tone="bad">
              <strong>{plural(sample.faults.length, "part")} of the text cannot be read, and will not be sent</strong>
              <ul>
                {sample.faults.map((fault) => (
                  <li key={fault.place}>
                    {sample.form === "json" ? "Record" : "Line"} {fault.place}: {fault.detail}
                  </li>
                ))}
              </ul>
            </Note>
          )}
          {sample.records.length > 0 && unknown.length > 0 && (
            <Note tone="warn">
              <strong>
                {plural(unknown.length, "field is no column", "fields are no columns")}: {unknown.join(", ")}
              </strong>
              <span>Records that have them are refused. Add the columns to the source, or take the fields out.</span>
            </Note>
          )}
          {sample.records.length > 0 && missing.length > 0 && unknown.length === 0 && (
            <span class="small muted">
              Not in the records, so null: {missing.join(", ")}.{relation.key.some((name) => missing.includes(name)) && relation.kind === "table" ? " A table needs its key." : ""}
            </span>
          )}
          <div class="row wrap">
            <Button kind="primary" disabled={sample.records.length === 0 || isSending} onClick={() => void sendAll()}>
              {isSending ? `${count(done?.sent ?? 0)} of ${count(total)} sent …` : sample.records.length === 0 ? "Append" : `Append ${plural(sample.records.length, "record")}`}
            </Button>
            {isSending && <Button onClick={() => ending.current?.abort()}>Stop</Button>}
          </div>
        </div>
      </Panel>
      {error !== null && <ErrorPanel error={error} title={done === null ? undefined : `Stopped after ${plural(done.sent, "record")}`} />}
      {done !== null && !isSending && <Outcome done={done} />}
      {sample.records.length > 0 && done === null && (
        <Panel flush id="preview" title="As they were understood" hint={sample.records.length > SHOWN ? `The first ${count(SHOWN)} of ${count(sample.records.length)}` : undefined}>
          <RowGrid label="Records to append" columns={columns} mostRows={10} rows={sample.records.slice(0, SHOWN).map((record, at) => ({ id: String(at), values: columns.map((column) => record[column.name] ?? null) }))} />
        </Panel>
      )}
    </div>
  );
}

function Outcome({ done }: { done: Sent }) {
  return (
    <>
      <Note tone={done.rejected === 0 ? "good" : "warn"}>
        <strong>
          {plural(done.appended, "record")} appended{done.rejected > 0 && `, ${count(done.rejected)} refused`}
        </strong>
        {done.rejected === 0 ? <span>They are durable, and queries that read them have begun.</span> : <span>Refused records are kept under Rejects, each with its reason.</span>}
        {done.refused.length > 0 && (
          <ul>
            {done.refused.slice(0, 20).map((each) => (
              <li key={each.index}>
                Record {each.index + 1}: <a href={`/v1/errors/${each.code}`}>{words(each.code)}</a> · {each.detail}
              </li>
            ))}
          </ul>
        )}
      </Note>
      {done.warnings.map((warning) => (
        <Note key={warning.code} tone="warn">
          <strong>{warning.detail}</strong>
          <span class="cure">{warning.cure}</span>
        </Note>
      ))}
    </>
  );
}
