/** A source: where records come from. A sample, or what its topic or directory holds, suggests its columns; the service says what it would make of them. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ApiError, isAborted } from "~/api/client";
import { RELATION_PATH } from "~/api/paths";
import type { ProblemItem, Relation, Warning } from "~/api/types";
import { Button, Note, Panel } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Segments } from "~/components/Tabs";
import { notify } from "~/components/toasts";
import { plural } from "~/format";
import { refreshOverview } from "~/overview";
import { append } from "~/records/appending";
import { suggestColumns, suggestEventTime, suggestKey } from "~/records/inference";
import { readSample } from "~/records/sample";
import { SampleInput } from "~/records/SampleInput";
import { navigate, pathOf } from "~/router";
import { ConnectorFields } from "./ConnectorFields";
import { Choose, Field, Findings, LongText, Text } from "./fields";
import { findColumns, problemsOf, useJudged } from "./judging";
import { Made } from "./Made";
import { problemsAt } from "./query";
import { brokenSource, CHANGES, definitionOf, EMPTY_SOURCE, holdsChanges, isReachable, openParts, type ConnectorDraft, type SourceDraft } from "./source";
import { SourceColumns } from "./SourceColumns";

export function NewSource({ relations }: { relations: readonly Relation[] }) {
  const [draft, setDraft] = useState<SourceDraft>(EMPTY_SOURCE);
  const [text, setText] = useState("");
  const [isFirstSent, setFirstSent] = useState(true);
  const [refused, setRefused] = useState<{ of: SourceDraft; problems: ProblemItem[] } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [isMaking, setMaking] = useState(false);
  const finding = useFinding(draft, setDraft);
  const sample = useMemo(() => readSample(text), [text]);
  const suggested = useMemo(() => suggestColumns(sample), [sample]);
  const set = (change: Partial<SourceDraft>): void => setDraft((before) => ({ ...before, ...change }));
  const setConnector = (change: Partial<ConnectorDraft>): void => setDraft((before) => ({ ...before, connector: { ...before.connector, ...change } }));

  useEffect(() => {
    if (suggested.length === 0) return;
    const key = suggestKey(suggested);
    set({
      columns: suggested.map((column) => ({ name: column.name, type: column.type, isKey: key.includes(column.name) })),
      eventTime: suggestEventTime(suggested),
    });
  }, [suggested]);

  const isLog = draft.connector.type === "log";
  const taken = useMemo(() => relations.map((each) => each.name), [relations]);
  const open = openParts(draft, taken);
  const { judged, isJudging } = useJudged(open.length === 0 ? draft : null);
  const told = [...(finding.problems ?? []), ...(refused?.of === draft ? refused.problems : [])];
  const problems = told.length > 0 ? told : open.length > 0 ? open : (judged?.problems ?? []);
  const isReady = open.length === 0 && judged !== null && judged.problems.length === 0 && !isJudging;
  const isBegun = draft.name !== "" || draft.columns.length > 0;
  const time = draft.columns.find((column) => column.name === draft.eventTime);
  const at = (...pointers: string[]): ProblemItem[] => problemsAt(problems, ...pointers);
  const warnings: Warning[] = open.length > 0 ? finding.warnings : merged(finding.warnings, judged?.warnings ?? []);

  const make = async (): Promise<void> => {
    setMaking(true);
    setError(null);
    try {
      await api.put(RELATION_PATH[draft.kind], { path: { name: draft.name }, body: definitionOf(draft), headers: { "if-none-match": "*" } });
      refreshOverview();
      if (isLog && isFirstSent && sample.records.length > 0) {
        const types = Object.fromEntries(draft.columns.map((column) => [column.name, column.type]));
        const sent = await append(draft.kind, draft.name, readSample(text, types).records, new AbortController().signal, () => undefined);
        notify(`${draft.name} is registered, with ${plural(sent.appended, "record")}`, sent.rejected > 0 ? "warn" : "good", sent.rejected > 0 ? `${plural(sent.rejected, "record")} refused: see Rejects` : undefined);
      } else notify(`${draft.name} is registered`);
      navigate(pathOf(`/${draft.kind}s/:name`, { name: draft.name }));
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 422) setRefused({ of: draft, problems: problemsOf(failure, draft) });
      else setError(failure as Error);
      setMaking(false);
    }
  };

  const chooseKind = (kind: "stream" | "table"): void => {
    const { value } = draft.connector;
    set({ kind, ...(kind === "stream" && value.format === CHANGES ? { connector: { ...draft.connector, value: { ...value, format: "json" } } } : {}) });
  };

  return (
    <div class="new-screen">
      <div class="stack">
        <Panel id="what" title="What it is">
          <div class="new-fields">
            <div class="field">
              <span>Kind</span>
              <div>
                <Segments
                  label="Kind"
                  value={draft.kind}
                  options={[
                    ["stream", "Stream"],
                    ["table", "Table"],
                  ]}
                  onChange={chooseKind}
                />
              </div>
              <span class="new-hint">{draft.kind === "stream" ? "Records are appended and stay as they are." : "Records upsert and delete rows by key."}</span>
            </div>
            <div class="field">
              <span>Records come from</span>
              <div>
                <Segments
                  label="Records come from"
                  value={draft.connector.type}
                  options={[
                    ["log", "HTTP"],
                    ["kafka", "Kafka"],
                    ["files", "Files"],
                  ]}
                  onChange={(type) => setConnector({ type })}
                />
              </div>
              <span class="new-hint">{ORIGINS[draft.connector.type]}</span>
            </div>
            <Field label="Name" hint="Lower case letters, digits and _" problems={isBegun ? at("/name") : []}>
              <Text value={draft.name} placeholder="departures" invalid={draft.name !== "" && at("/name").length > 0} onChange={(name) => set({ name: name.toLowerCase().replace(/[\s-]+/g, "_") })} />
            </Field>
          </div>
        </Panel>
        {isLog ? (
          <Panel id="sample" title="Begin with a sample" hint="Columns, key and event time are suggested from it. Or add columns by hand below.">
            <SampleInput label="Sample of records" text={text} sample={sample} onText={setText} mostBytes={4 * 1024 * 1024} />
          </Panel>
        ) : (
          <ConnectorFields draft={draft.connector} kind={draft.kind} problems={isBegun || told.length > 0 ? problems : []} onFind={isReachable(draft.connector) ? finding.find : null} isFinding={finding.isFinding} set={setConnector} />
        )}
        <SourceColumns
          columns={draft.columns}
          from={draft.connector.type}
          examples={isLog ? Object.fromEntries(suggested.map((each) => [each.name, each.example])) : {}}
          problems={draft.columns.length === 0 && told.length === 0 ? [] : at("/columns", "/key")}
          onChange={(columns) => set({ columns, eventTime: columns.some((column) => column.name === draft.eventTime) ? draft.eventTime : null })}
        />
        <Panel id="time" title="Time and history">
          <div class="new-fields">
            <Field label="Event time" hint="When it happened. Windows and joins go by it." problems={at("/event_time")}>
              <Choose value={draft.eventTime ?? ""} options={[["", ownTime(draft)], ...draft.columns.filter((column) => canBeTime(column.type)).map((column) => [column.name, column.name] as const)]} onChange={(name) => set({ eventTime: name === "" ? null : name })} />
            </Field>
            {time?.type === "bigint" && (
              <Field label="It counts" problems={at("/event_time_unit")}>
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
              <Field label="It is written as" hint="Empty: RFC 3339. Else such as %Y-%m-%d %H:%M:%S" problems={at("/event_time_format")}>
                <Text value={draft.eventTimeFormat} placeholder="%Y-%m-%d %H:%M:%S" mono onChange={(eventTimeFormat) => set({ eventTimeFormat })} />
              </Field>
            )}
            {draft.kind === "table" && (
              <>
                <Field label="Keeps versions for" hint="Such as 2d: joins and reads find the row of a time. Empty: the latest row alone." problems={at("/versioned")}>
                  <Text value={draft.historyRetention} placeholder="2d" invalid={at("/versioned").length > 0} onChange={(historyRetention) => set({ historyRetention })} />
                </Field>
                <label class="row new-check">
                  <input type="checkbox" checked={draft.materialize} onChange={(event) => set({ materialize: event.currentTarget.checked })} />
                  <span>Keep rows for reading</span>
                </label>
              </>
            )}
          </div>
        </Panel>
        <More draft={draft} at={at} set={set} setConnector={setConnector} />
      </div>
      <div class="stack new-made">
        <Made sql={open.length === 0 && judged?.sql ? brokenSource(judged.sql) : null} json={(open.length === 0 ? judged?.definition : null) ?? definitionOf(draft)} request={`PUT /v1/${draft.kind}s/${draft.name || "…"}`} isStale={isJudging} />
        {(draft.columns.length > 0 || told.length > 0) && <Findings problems={problems} warnings={warnings} />}
        {isReady && warnings.length === 0 && (
          <Note tone="good">
            <span>The service would take it as it is.</span>
          </Note>
        )}
        {error !== null && <ErrorPanel error={error} />}
        {isLog && sample.records.length > 0 && (
          <label class="row">
            <input type="checkbox" checked={isFirstSent} onChange={(event) => setFirstSent(event.currentTarget.checked)} />
            <span>Also append the {plural(sample.records.length, "record")} of the sample</span>
          </label>
        )}
        <div>
          <Button kind="primary" disabled={!isReady || isMaking} onClick={() => void make()}>
            {isMaking ? "Making it …" : isJudging ? "The service looks at it …" : `Make the ${draft.kind}`}
          </Button>
        </div>
        {isLog && draft.kind === "table" && draft.name !== "" && (
          <p class="small muted">
            Changes of a database come to it by Debezium Server: <code>/v1/tables/{draft.name}/records?format=debezium</code> is its address. <a href="/guide/guides/change-data/">How</a>
          </p>
        )}
      </div>
    </div>
  );
}

const ORIGINS = {
  log: "They are sent to the service and kept in its log.",
  kafka: "A topic has them; positions are its offsets.",
  files: "Files of a directory, as they appear.",
};

function More({ draft, at, set, setConnector }: { draft: SourceDraft; at: (...pointers: string[]) => ProblemItem[]; set: (change: Partial<SourceDraft>) => void; setConnector: (change: Partial<ConnectorDraft>) => void }) {
  const { connector } = draft;
  const isWrong = at("/connector/where", "/connector/feed", "/connector/retention", "/connector/partitions", "/connector/further").length > 0;
  return (
    <details class="panel new-more" open={isWrong || undefined}>
      <summary>More settings, and refused records</summary>
      <div class="new-fields body">
        {connector.type === "log" && (
          <>
            <Field label="Partitions" hint="Records of a key share one. It cannot be changed later." problems={at("/connector/partitions")}>
              <input class="input" type="number" min={1} max={256} value={connector.partitions} onInput={(event) => setConnector({ partitions: Math.max(1, Number(event.currentTarget.value) || 1) })} />
            </Field>
            <Field label="Keeps records for" hint="Such as 30d. Empty: for ever." problems={at("/connector/retention")}>
              <Text value={connector.retention} placeholder="for ever" invalid={at("/connector/retention").length > 0} onChange={(retention) => setConnector({ retention })} />
            </Field>
            <Field label="Feed" hint="Sources of one feed share its order. Empty: one of its own." problems={at("/connector/feed")}>
              <Text value={connector.feed} placeholder="its own" invalid={at("/connector/feed").length > 0} onChange={(feed) => setConnector({ feed })} />
            </Field>
          </>
        )}
        {connector.type === "kafka" && (
          <Field label="Records removed before they were read" hint="By the broker's retention">
            <Choose
              value={connector.onLost}
              options={[
                ["stop", "stop the query, with the reason"],
                ["skip", "are counted; it goes on"],
              ]}
              onChange={(onLost) => setConnector({ onLost })}
            />
          </Field>
        )}
        <Field label="Takes records where" hint="A condition, such as kind = 'bid'. Empty: all." problems={at("/connector/where")}>
          <Text value={connector.where} mono placeholder="all records" invalid={at("/connector/where").length > 0} onChange={(where) => setConnector({ where })} />
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
        {connector.type === "kafka" && (
          <Field label="Further settings of the connector, as JSON" class="wide" hint={<>Whatever has no field here: see <a href="/guide/reference/definitions/">the reference</a>.</>} problems={at("/connector/further", "/connector/record_columns")}>
            <LongText value={connector.further} placeholder='{"record_columns": {"trace": "header:traceparent"}}' invalid={at("/connector/further").length > 0} onChange={(further) => setConnector({ further })} />
          </Field>
        )}
      </div>
    </details>
  );
}

/** Finding columns: what is asked is forgotten where the form names something else meanwhile. */
function useFinding(draft: SourceDraft, setDraft: (change: (before: SourceDraft) => SourceDraft) => void) {
  const [isFinding, setFinding] = useState(false);
  const [found, setFound] = useState<{ of: ConnectorDraft; problems: ProblemItem[] | null; warnings: Warning[] } | null>(null);
  const asking = useRef<AbortController | null>(null);
  useEffect(() => () => asking.current?.abort(), [draft.connector, draft.kind]);
  const find = (): void => {
    const asked = new AbortController();
    asking.current = asked;
    setFinding(true);
    findColumns(draft, asked.signal)
      .then((answer) => {
        setFound({ of: draft.connector, problems: null, warnings: answer.warnings.filter((warning) => warning.pointer === "/columns") });
        setDraft((before) => ({
          ...before,
          columns: Object.entries(answer.columns).map(([name, type]) => ({ name, type, isKey: answer.key.includes(name) })),
          eventTime: before.eventTime !== null && before.eventTime in answer.columns ? before.eventTime : null,
        }));
      })
      .catch((failure: unknown) => {
        if (isAborted(failure)) return;
        const problems = failure instanceof ApiError ? problemsOf(failure, draft) : [{ pointer: "", code: "failed" as ProblemItem["code"], detail: (failure as Error).message }];
        setFound({ of: draft.connector, problems, warnings: [] });
      })
      .finally(() => setFinding(false));
  };
  const isOfThis = found !== null && found.of === draft.connector;
  // Where columns are declared meanwhile, what could not be found is no longer missing.
  const isPast = isOfThis && found.problems !== null && draft.columns.length > 0 && !found.problems.some((problem) => problem.pointer.startsWith("/connector"));
  return { find, isFinding, problems: isOfThis && !isPast ? found.problems : null, warnings: isOfThis ? found.warnings : [] };
}

function merged(first: readonly Warning[], second: readonly Warning[]): Warning[] {
  const seen = new Set(second.map((each) => each.detail));
  return [...first.filter((each) => !seen.has(each.detail)), ...second];
}

/** Which time records have where no column is named. */
function ownTime(draft: SourceDraft): string {
  if (holdsChanges(draft)) return "when the change was committed";
  return draft.connector.type === "kafka" ? "the record's timestamp" : "the time of arrival";
}

function canBeTime(type: string): boolean {
  return ["timestamp", "bigint", "int", "string"].includes(type);
}
