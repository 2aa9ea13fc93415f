/** A source: where records come from. A sample suggests its columns; the service says what it would make of them. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { api, ApiError, isAborted } from "~/api/client";
import type { ProblemItem, Relation, StatementResult, Warning } from "~/api/types";
import { Button, Empty, Note, Panel } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Icon } from "~/components/icons";
import { Segments } from "~/components/Tabs";
import { notify } from "~/components/toasts";
import { plural } from "~/format";
import { refreshOverview } from "~/overview";
import { append } from "~/records/appending";
import { textOf } from "~/records/cells";
import { suggestColumns, suggestEventTime, suggestKey } from "~/records/inference";
import { readSample } from "~/records/sample";
import { SampleInput } from "~/records/SampleInput";
import { navigate, pathOf } from "~/router";
import { check } from "../sql/running";
import { Choose, Field, Findings, Text } from "./fields";
import { Made } from "./Made";
import { definitionOf, EMPTY_SOURCE, statementOf, type ColumnDraft, type SourceDraft } from "./source";

const REST_MS = 350;
const TYPES = ["string", "int", "bigint", "double", "boolean", "timestamp", "date", "time", "decimal(18,2)", "bytes", "array<string>", "map<string,string>"];

interface Checked {
  problems: ProblemItem[];
  warnings: Warning[];
  definition: unknown;
}

export function NewSource({ relations }: { relations: readonly Relation[] }) {
  const [draft, setDraft] = useState<SourceDraft>(EMPTY_SOURCE);
  const [text, setText] = useState("");
  const [isFirstSent, setFirstSent] = useState(true);
  const [error, setError] = useState<Error | null>(null);
  const [isMaking, setMaking] = useState(false);
  const sample = useMemo(() => readSample(text), [text]);
  const suggested = useMemo(() => suggestColumns(sample), [sample]);
  const set = (change: Partial<SourceDraft>): void => setDraft((before) => ({ ...before, ...change }));

  useEffect(() => {
    if (suggested.length === 0) return;
    const key = suggestKey(suggested);
    set({
      columns: suggested.map((column) => ({ name: column.name, type: column.type, isKey: key.includes(column.name) })),
      eventTime: suggestEventTime(suggested),
    });
  }, [suggested]);

  const statement = useMemo(() => statementOf(draft), [draft]);
  const open = openParts(draft, relations);
  const { checked, isChecking } = useChecked(open.length === 0 ? statement : null);
  const problems = open.length > 0 ? open : (checked?.problems ?? []);
  const isReady = open.length === 0 && checked !== null && checked.problems.length === 0 && !isChecking;
  const isBegun = draft.name !== "" || draft.columns.length > 0;
  const time = draft.columns.find((column) => column.name === draft.eventTime);

  const make = async (): Promise<void> => {
    setMaking(true);
    setError(null);
    try {
      const path = draft.kind === "stream" ? ("/v1/streams/{name}" as const) : ("/v1/tables/{name}" as const);
      await api.put(path, { path: { name: draft.name }, body: definitionOf(draft), headers: { "if-none-match": "*" } });
      refreshOverview();
      if (isFirstSent && sample.records.length > 0) {
        const types = Object.fromEntries(draft.columns.map((column) => [column.name, column.type]));
        const sent = await append(draft.kind, draft.name, readSample(text, types).records, new AbortController().signal, () => undefined);
        notify(`${draft.name} is registered, with ${plural(sent.appended, "record")}`, sent.rejected > 0 ? "warn" : "good", sent.rejected > 0 ? `${plural(sent.rejected, "record")} refused: see Rejects` : undefined);
      } else notify(`${draft.name} is registered`);
      navigate(pathOf(`/${draft.kind}s/:name`, { name: draft.name }));
    } catch (failure) {
      setError(failure as Error);
      setMaking(false);
    }
  };

  return (
    <div class="new-screen">
      <div class="stack">
        <Panel id="sample" title="Begin with a sample" hint="Columns, key and event time are suggested from it. Or add columns by hand below.">
          <SampleInput label="Sample of records" text={text} sample={sample} onText={setText} mostBytes={4 * 1024 * 1024} />
        </Panel>
        <Panel id="what" title="What it is">
          <div class="new-fields">
            <div class="field wide">
              <span>Kind</span>
              <div>
                <Segments
                  label="Kind"
                  value={draft.kind}
                  options={[
                    ["stream", "Stream"],
                    ["table", "Table"],
                  ]}
                  onChange={(kind) => set({ kind })}
                />
              </div>
              <span class="new-hint">{draft.kind === "stream" ? "Records are appended and stay as they are." : "Records upsert and delete rows by key."}</span>
            </div>
            <Field label="Name" hint="Lower case letters, digits and _" problems={isBegun ? problemsOf(problems, "/name") : []}>
              <Text value={draft.name} placeholder="departures" invalid={draft.name !== "" && problemsOf(problems, "/name").length > 0} onChange={(name) => set({ name: name.toLowerCase().replace(/[\s-]+/g, "_") })} />
            </Field>
            <Field label="Event time" hint="When it happened. Windows and joins go by it." problems={problemsOf(problems, "/event_time")}>
              <Choose value={draft.eventTime ?? ""} options={[["", "the time of arrival"], ...draft.columns.filter((column) => canBeTime(column.type)).map((column) => [column.name, column.name] as const)]} onChange={(name) => set({ eventTime: name === "" ? null : name })} />
            </Field>
            {time?.type === "bigint" && (
              <Field label="It counts">
                <Choose
                  value={draft.eventTimeUnit}
                  options={[
                    ["s", "seconds since 1970"],
                    ["ms", "milliseconds since 1970"],
                    ["us", "microseconds since 1970"],
                    ["ns", "nanoseconds since 1970"],
                  ]}
                  onChange={(eventTimeUnit) => set({ eventTimeUnit })}
                />
              </Field>
            )}
            {time?.type === "string" && (
              <Field label="It is written as" hint="Empty: RFC 3339. Else such as %Y-%m-%d %H:%M:%S">
                <Text value={draft.eventTimeFormat} placeholder="%Y-%m-%d %H:%M:%S" mono onChange={(eventTimeFormat) => set({ eventTimeFormat })} />
              </Field>
            )}
            {draft.kind === "table" && (
              <>
                <Field label="Keeps versions for" hint="Such as 2d: joins and reads find the row of a time. Empty: the latest row alone.">
                  <Text value={draft.historyRetention} placeholder="2d" onChange={(historyRetention) => set({ historyRetention })} />
                </Field>
                <label class="row new-check">
                  <input type="checkbox" checked={draft.materialize} onChange={(event) => set({ materialize: event.currentTarget.checked })} />
                  <span>Keep rows for reading</span>
                </label>
              </>
            )}
          </div>
        </Panel>
        <Columns draft={draft} examples={Object.fromEntries(suggested.map((each) => [each.name, each.example]))} problems={problemsOf(problems, "/columns", "/key")} onChange={(columns) => set({ columns, eventTime: columns.some((column) => column.name === draft.eventTime) ? draft.eventTime : null })} />
        <details class="panel new-more">
          <summary>Log and refused records</summary>
          <div class="new-fields body">
            <Field label="Partitions" hint="Records of a key share one. It cannot be changed later.">
              <input class="input" type="number" min={1} max={64} value={draft.partitions} onInput={(event) => set({ partitions: Math.max(1, Number(event.currentTarget.value) || 1) })} />
            </Field>
            <Field label="Keeps records for" hint="Such as 30d. Empty: for ever.">
              <Text value={draft.retention} placeholder="for ever" onChange={(retention) => set({ retention })} />
            </Field>
            <Field label="A record that cannot be read">
              <Choose
                value={draft.onBadRecord}
                options={[
                  ["reject", "is kept aside with its reason"],
                  ["stop", "stops the queries that read it"],
                ]}
                onChange={(onBadRecord) => set({ onBadRecord })}
              />
            </Field>
          </div>
        </details>
      </div>
      <div class="stack new-made">
        <Made sql={open.length === 0 ? statement : null} json={checked?.definition ?? definitionOf(draft)} request={`PUT /v1/${draft.kind}s/${draft.name || "…"}`} />
        {draft.columns.length > 0 && <Findings problems={problems} warnings={checked?.warnings ?? []} />}
        {isReady && checked.warnings.length === 0 && (
          <Note tone="good">
            <span>The service would take it as it is.</span>
          </Note>
        )}
        {error !== null && <ErrorPanel error={error} />}
        {sample.records.length > 0 && (
          <label class="row">
            <input type="checkbox" checked={isFirstSent} onChange={(event) => setFirstSent(event.currentTarget.checked)} />
            <span>Also append the {plural(sample.records.length, "record")} of the sample</span>
          </label>
        )}
        <div>
          <Button kind="primary" disabled={!isReady || isMaking} onClick={() => void make()}>
            {isMaking ? "Making it …" : `Make the ${draft.kind}`}
          </Button>
        </div>
      </div>
    </div>
  );
}

function Columns({ draft, examples, problems, onChange }: { draft: SourceDraft; examples: Record<string, unknown>; problems: ProblemItem[]; onChange: (columns: ColumnDraft[]) => void }) {
  const change = (at: number, part: Partial<ColumnDraft>): void => onChange(draft.columns.map((column, place) => (place === at ? { ...column, ...part } : column)));
  return (
    <Panel
      flush
      id="columns"
      title="Columns"
      hint={draft.columns.length === 0 ? undefined : plural(draft.columns.length, "column")}
      actions={
        <Button small icon="add" onClick={() => onChange([...draft.columns, { name: "", type: "string", isKey: false }])}>
          Column
        </Button>
      }
    >
      {draft.columns.length === 0 ? (
        <Empty title="No columns yet">
          <p>Paste some records above, or add columns one by one.</p>
        </Empty>
      ) : (
        <div class="body scroll-x">
          <table class="plain new-columns">
            <thead>
              <tr>
                <th>Name</th>
                <th>Type</th>
                <th>Key</th>
                <th>In the sample</th>
                <th>
                  <span class="unseen">Take away</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {draft.columns.map((column, at) => (
                <tr key={at}>
                  <td>
                    <input class="input" aria-label={`Name of column ${at + 1}`} value={column.name} spellcheck={false} onInput={(event) => change(at, { name: event.currentTarget.value })} />
                  </td>
                  <td>
                    <input class="input mono" aria-label={`Type of ${column.name || `column ${at + 1}`}`} list="column-types" value={column.type} spellcheck={false} onInput={(event) => change(at, { type: event.currentTarget.value })} />
                  </td>
                  <td>
                    <input type="checkbox" aria-label={`${column.name || `Column ${at + 1}`} is part of the key`} checked={column.isKey} onChange={(event) => change(at, { isKey: event.currentTarget.checked })} />
                  </td>
                  <td class="muted ellipsis new-example">{column.name in examples ? textOf(examples[column.name]) : ""}</td>
                  <td>
                    <button type="button" class="button quiet small icon" aria-label={`Take ${column.name || `column ${at + 1}`} away`} onClick={() => onChange(draft.columns.filter((_, place) => place !== at))}>
                      <Icon name="close" size={14} />
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <datalist id="column-types">
            {TYPES.map((type) => (
              <option key={type} value={type} />
            ))}
          </datalist>
          {problems.map((problem) => (
            <p key={problem.detail} class="late small">
              {problem.detail}
            </p>
          ))}
        </div>
      )}
    </Panel>
  );
}

/** What the form itself knows to be missing: the service is not asked before. */
function openParts(draft: SourceDraft, relations: readonly Relation[]): ProblemItem[] {
  const found: [string, string][] = [];
  if (draft.name === "") found.push(["/name", "Give it a name."]);
  else if (!/^[a-z][a-z0-9_]{0,62}$/.test(draft.name)) found.push(["/name", "A name has lower case letters, digits and _, and begins with a letter."]);
  else if (relations.some((each) => each.name === draft.name)) found.push(["/name", `There is a stream or table ${draft.name} already.`]);
  if (draft.columns.length === 0) found.push(["/columns", "It needs a column at least."]);
  if (draft.columns.some((column) => column.name.trim() === "")) found.push(["/columns", "A column has no name."]);
  if (draft.kind === "table" && !draft.columns.some((column) => column.isKey)) found.push(["/key", "A table needs a key: which columns tell its rows apart?"]);
  return found.map(([pointer, detail]) => ({ pointer, detail, code: "missing" as ProblemItem["code"] }));
}

function problemsOf(problems: readonly ProblemItem[], ...pointers: string[]): ProblemItem[] {
  return problems.filter((problem) => pointers.includes(problem.pointer));
}

function canBeTime(type: string): boolean {
  return ["timestamp", "bigint", "int", "string"].includes(type);
}

/** Ask the service what a statement would do, once typing has rested. */
function useChecked(statement: string | null): { checked: Checked | null; isChecking: boolean } {
  const [checked, setChecked] = useState<(Checked & { of: string }) | null>(null);
  useEffect(() => {
    if (statement === null) return undefined;
    const asking = new AbortController();
    const timer = setTimeout(() => {
      check(statement, asking.signal)
        .then((results) => {
          const result: StatementResult | undefined = results[0];
          setChecked({ of: statement, problems: [], warnings: result?.warnings ?? [], definition: result?.definition ?? null });
        })
        .catch((error: unknown) => {
          if (isAborted(error) || !(error instanceof ApiError)) return;
          const faults = error.problem.errors.length > 0 ? error.problem.errors : [{ pointer: "", code: error.problem.code, detail: error.problem.detail }];
          setChecked({
            of: statement,
            problems: faults.map((fault) => ({ pointer: "", code: fault.code as ProblemItem["code"], detail: fault.detail.replace(/^line \d+, column \d+: /, "") })),
            warnings: [],
            definition: null,
          });
        });
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [statement]);
  return { checked, isChecking: statement !== null && checked?.of !== statement };
}
