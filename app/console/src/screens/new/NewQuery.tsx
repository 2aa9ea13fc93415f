/** A query: what it reads, what it does with it, what comes of it. The service checks it while it is written. */
import { useMemo, useState } from "preact/hooks";
import { api, isAborted } from "~/api/client";
import type { ProblemItem, Relation, Validation } from "~/api/types";
import { Button, Empty, Note, Panel } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Icon } from "~/components/icons";
import { notify } from "~/components/toasts";
import { plural } from "~/format";
import { refreshOverview } from "~/overview";
import { Link, navigate, pathOf, place, setQuery } from "~/router";
import { screenFor } from "~/screens/registry";
import { useAsked } from "./asking";
import { Choose, Faults, Field, Findings, Text } from "./fields";
import { brokenSql } from "~/components/Code";
import { Made } from "./Made";
import { definitionOf, EMPTY_QUERY, problemsAt, suggestedName, suggestedOn, type QueryDraft, type Shape } from "./query";

const REST_MS = 350;

const SHAPES: { id: Shape; title: string; about: string }[] = [
  { id: "windows", title: "Results by window", about: "Counts and sums per hour, per session, given once when final." },
  { id: "join", title: "Join with a table", about: "Each record with the row that was valid at its own time." },
  { id: "table", title: "Running totals", about: "A row per key that follows every record." },
  { id: "filter", title: "Filter and change", about: "Some of the records, with other columns." },
];

export function NewQuery({ relations }: { relations: readonly Relation[] }) {
  const streams = relations.filter((each) => each.kind === "stream");
  const [draft, setDraft] = useState<QueryDraft>(() => {
    const name = place.peek().query.get("from") ?? streams[0]?.name ?? "";
    return { ...EMPTY_QUERY, from: name, groupBy: keyOf(relations, name) };
  });
  const [isNamed, setNamed] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [isMaking, setMaking] = useState(false);
  const set = (change: Partial<QueryDraft>): void => setDraft((before) => ({ ...before, ...change }));

  const from = relations.find((each) => each.name === draft.from);
  const table = relations.find((each) => each.name === draft.join.table);
  const sources = draft.shape === "filter" || draft.shape === "table" ? relations : streams;
  const whole = { ...draft, name: isNamed ? draft.name : suggestedName(draft) };
  const open = draft.from === "" ? "Choose what it reads." : draft.shape === "join" && draft.join.table === "" ? "Choose the table that each record meets." : null;
  const definition = useMemo(() => definitionOf(whole, relations), [draft, isNamed, relations]);
  const { checked, failure, isChecking } = useValidation(open === null ? definition : null);
  const problems = open === null ? (checked?.problems ?? []) : [];
  const isReady = open === null && checked?.valid === true && !isChecking;
  const at = (...pointers: string[]): ProblemItem[] => problemsAt(problems, ...pointers);

  if (relations.length === 0)
    return (
      <Panel flush>
        <Empty title="There is nothing to read yet">
          <p>A query reads a stream or a table. Make a source first.</p>
          <Button kind="primary" onClick={() => setQuery({ what: null })}>
            Make a source
          </Button>
        </Empty>
      </Panel>
    );

  const make = async (): Promise<void> => {
    setMaking(true);
    setError(null);
    try {
      await api.post("/v1/queries", { body: definition });
      refreshOverview();
      notify(`${whole.name} is created, and starts`);
      const path = pathOf("/queries/:name", { name: whole.name });
      navigate(screenFor(path) === null ? "/" : path);
    } catch (problem) {
      setError(problem as Error);
      setMaking(false);
    }
  };

  const choose = (shape: Shape): void => {
    const usable = shape === "filter" || shape === "table" ? relations : streams;
    const name = usable.some((each) => each.name === draft.from) ? draft.from : (usable[0]?.name ?? "");
    set({ shape, from: name, emit: "final", ...(name === draft.from ? {} : { groupBy: keyOf(relations, name), select: [] }) });
  };

  return (
    <div class="new-screen">
      <div class="stack">
        <div class="new-shapes" role="radiogroup" aria-label="What the query does">
          {SHAPES.map((shape) => (
            <label key={shape.id} class="new-shape">
              <input type="radio" name="shape" checked={draft.shape === shape.id} onChange={() => choose(shape.id)} />
              <span>
                <strong>{shape.title}</strong>
                <span class="muted small">{shape.about}</span>
              </span>
            </label>
          ))}
        </div>
        <Panel id="reads" title="What it reads">
          <div class="new-fields">
            <Field label="From" problems={at("/from")}>
              <Choose value={draft.from} options={[["", "choose …"], ...sources.map((each) => [each.name, `${each.name} (${each.kind})`] as const)]} onChange={(name) => set({ from: name, groupBy: keyOf(relations, name), select: [] })} />
            </Field>
            <Field label="Only where" hint="A condition, such as delay > 15 and carrier <> 'XX'. Empty: all." problems={at("/where")}>
              <Text value={draft.where} mono placeholder="all records" invalid={at("/where").length > 0} onChange={(where) => set({ where })} />
            </Field>
          </div>
          {from !== undefined && <Columns relation={from} />}
          <div class="new-fields new-start">
            <Field label="Begins with" problems={draft.start === "at" ? [] : at("/start")}>
              <Choose
                value={draft.start}
                options={[
                  ["earliest", "the oldest record that there is"],
                  ["latest", "what comes from now on"],
                  ["at", "an event time"],
                ]}
                onChange={(start) => set({ start })}
              />
            </Field>
            {draft.start === "at" && (
              <Field label="Event time (UTC)" problems={at("/start")}>
                <Text value={draft.startAt} placeholder="2013-01-01T12:00:00Z" invalid={at("/start").length > 0} onChange={(startAt) => set({ startAt })} />
              </Field>
            )}
          </div>
        </Panel>
        {draft.shape === "join" && (
          <Panel id="join" title="The table beside it">
            <div class="new-fields">
              <Field label="Table" problems={at("/joins/0/table")}>
                <Choose
                  value={draft.join.table}
                  options={[["", "choose …"], ...relations.filter((each) => each.kind === "table").map((each) => [each.name, each.name] as const)]}
                  onChange={(name) => set({ join: { ...draft.join, table: name, on: suggestedOn(from, relations.find((each) => each.name === name)) } })}
                />
              </Field>
              <Field label="Records without a row">
                <Choose
                  value={draft.join.type}
                  options={[
                    ["left", "stay, with nulls"],
                    ["inner", "are left out"],
                  ]}
                  onChange={(type) => set({ join: { ...draft.join, type } })}
                />
              </Field>
              <Field label="On" class="wide" hint="Which row belongs to a record" problems={at("/joins/0/on")}>
                <Text value={draft.join.on} mono placeholder={`${draft.from || "stream"}.key = ${draft.join.table || "table"}.key`} invalid={at("/joins/0/on").length > 0} onChange={(on) => set({ join: { ...draft.join, on } })} />
              </Field>
              <Field label="Waits for late rows" hint="Grace: a record waits until stream time is this much later. Empty: it joins on arrival." problems={at("/joins/0/grace")}>
                <Text value={draft.join.grace} placeholder="on arrival" invalid={at("/joins/0/grace").length > 0} onChange={(grace) => set({ join: { ...draft.join, grace } })} />
              </Field>
              <Field label="A record later than that" problems={at("/joins/0/late")}>
                <Choose
                  value={draft.join.late}
                  options={[
                    ["join", "joins at once"],
                    ["drop", "is dropped and counted"],
                    ["divert", "is kept aside, for replay"],
                  ]}
                  onChange={(late) => set({ join: { ...draft.join, late } })}
                />
              </Field>
            </div>
            {table !== undefined && <Columns relation={table} />}
          </Panel>
        )}
        {(draft.shape === "windows" || draft.shape === "table") && (
          <Panel id="groups" title="Groups and results">
            <div class="new-fields">
              <fieldset class="wide new-set">
                <legend>Group by</legend>
                <div class="row wrap">
                  {Object.keys(from?.columns ?? {}).map((name) => (
                    <label key={name} class="row">
                      <input
                        type="checkbox"
                        checked={draft.groupBy.includes(name)}
                        onChange={(event) => set({ groupBy: event.currentTarget.checked ? [...draft.groupBy, name] : draft.groupBy.filter((each) => each !== name) })}
                      />
                      <span>{name}</span>
                    </label>
                  ))}
                </div>
                <Faults problems={at("/group_by")} />
              </fieldset>
              {draft.shape === "windows" && <WindowFields draft={draft} at={at} set={set} />}
              <Items label="Results" items={draft.aggregates.map((each) => ({ name: each.name, text: each.call }))} placeholder="avg(delay)" problems={at("/aggregate")} suggestions={callsOf(from)} onChange={(items) => set({ aggregates: items.map((item) => ({ name: item.name, call: item.text })) })} />
            </div>
          </Panel>
        )}
        {(draft.shape === "filter" || draft.shape === "join") && (
          <Panel id="select" title="Columns of the result" hint={draft.select.length === 0 ? "All columns. Add one to choose." : undefined}>
            <div class="new-fields">
              <Items label="Columns" items={draft.select.map((item) => ({ name: item.name, text: item.expression }))} placeholder={draft.shape === "join" ? `${draft.from}.${Object.keys(from?.columns ?? {})[0] ?? "column"}` : "upper(origin)"} problems={at("/select")} suggestions={columnsOf(from, draft.shape === "join" ? table : undefined)} onChange={(items) => set({ select: items.map((item) => ({ name: item.name, expression: item.text })) })} />
            </div>
          </Panel>
        )}
        <Panel id="result" title="The result">
          <div class="new-fields">
            <Field label="Name" hint="Of the query and of what it writes" problems={at("/name", "/into/table", "/into/stream")}>
              <Text
                value={whole.name}
                invalid={at("/name", "/into/table", "/into/stream").length > 0}
                onChange={(name) => {
                  setNamed(name !== "");
                  set({ name: name.toLowerCase().replace(/[\s-]+/g, "_") });
                }}
              />
            </Field>
            {(draft.shape === "windows" || draft.shape === "table" || from?.kind === "table") && draft.shape !== "join" && (
              <Field label="Keeps versions for" hint="Such as 7d: it can be read as of an event time. Empty: the latest alone." problems={at("/into/versioned")}>
                <Text value={draft.versioned} placeholder="latest alone" invalid={at("/into/versioned").length > 0} onChange={(versioned) => set({ versioned })} />
              </Field>
            )}
          </div>
        </Panel>
      </div>
      <div class="stack new-made">
        <Made sql={open === null && checked?.sql ? brokenSql(checked.sql) : null} json={definition} request="POST /v1/queries" />
        {failure !== null && <ErrorPanel error={failure} />}
        {open !== null && (
          <Note>
            <span>{open}</span>
          </Note>
        )}
        <Findings problems={problems} warnings={open === null ? (checked?.warnings ?? []) : []} />
        {isReady && checked.output !== null && (
          <Note tone="good">
            <strong>The service would take it</strong>
            <span>
              {plural(Object.keys(outputColumns(checked)).length, "column")}: {Object.entries(outputColumns(checked)).map(([name, type]) => `${name} ${type}`).join(", ")}
            </span>
          </Note>
        )}
        {error !== null && <ErrorPanel error={error} />}
        <div>
          <Button kind="primary" disabled={!isReady || isMaking || checked?.edit != null} onClick={() => void make()}>
            {isMaking ? "Making it …" : "Make the query"}
          </Button>
          {checked?.edit != null && (
            <p class="late small">
              There is a query of this name. Give another name, or <Link to={`${pathOf("/queries/:name", { name: whole.name })}?tab=definition`}>edit that one</Link>: its definition opens in SQL.
            </p>
          )}
        </div>
      </div>
    </div>
  );
}

function WindowFields({ draft, at, set }: { draft: QueryDraft; at: (...pointers: string[]) => ProblemItem[]; set: (change: Partial<QueryDraft>) => void }) {
  const { window } = draft;
  const change = (part: Partial<QueryDraft["window"]>): void => set({ window: { ...window, ...part } });
  const sizes = { tumbling: "Size", hopping: "Size", session: "Ends after a silence of", sliding: "Records apart at most" };
  return (
    <>
      <Field label="Window" problems={at("/window/type")}>
        <Choose
          value={window.type}
          options={[
            ["tumbling", "tumbling: one after the other"],
            ["hopping", "hopping: they overlap"],
            ["session", "session: until silence"],
            ["sliding", "sliding: around each record"],
          ]}
          onChange={(type) => change({ type })}
        />
      </Field>
      <Field label={sizes[window.type]} problems={at("/window/size", "/window/gap", "/window/difference")}>
        <Text value={window.size} placeholder="1h" onChange={(size) => change({ size })} />
      </Field>
      {window.type === "hopping" && (
        <Field label="A new one every" problems={at("/window/advance")}>
          <Text value={window.advance} placeholder="15m" onChange={(advance) => change({ advance })} />
        </Field>
      )}
      <Field label="Grace" hint="How much later than its end a window still takes records." problems={at("/window/grace")}>
        <Text value={window.grace} placeholder="0s" onChange={(grace) => change({ grace })} />
      </Field>
      <Field label="Results come" hint={draft.emit === "final" ? "Once per window, when it can no longer change." : "With each change; the last one is right."} problems={at("/suppress")}>
        <Choose
          value={draft.emit}
          options={[
            ["final", "once they are final"],
            ["changes", "with each change"],
          ]}
          onChange={(emit) => set({ emit })}
        />
      </Field>
    </>
  );
}

interface Item {
  name: string;
  text: string;
}

function Items({ label, items, placeholder, problems, suggestions, onChange }: { label: string; items: Item[]; placeholder: string; problems: ProblemItem[]; suggestions: string[]; onChange: (items: Item[]) => void }) {
  const list = `suggested-${label}`;
  const change = (at: number, part: Partial<Item>): void => onChange(items.map((item, place) => (place === at ? { ...item, ...part } : item)));
  const add = (): void => {
    const text = suggestions.find((each) => !items.some((item) => item.text === each)) ?? "";
    onChange([...items, { name: nameFor(text, items), text }]);
  };
  return (
    <fieldset class="wide new-set">
      <legend>{label}</legend>
      {items.map((item, at) => (
        <div key={at} class="new-item">
          <input class="input mono" aria-label={`Expression ${at + 1}`} list={list} placeholder={placeholder} value={item.text} spellcheck={false} onInput={(event) => change(at, { text: event.currentTarget.value })} />
          <span class="muted">as</span>
          <input class="input" aria-label={`Name of ${item.text || `expression ${at + 1}`}`} placeholder="name" value={item.name} spellcheck={false} onInput={(event) => change(at, { name: event.currentTarget.value })} />
          <button type="button" class="button quiet small icon" aria-label={`Take ${item.name || item.text} away`} onClick={() => onChange(items.filter((_, place) => place !== at))}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
      <datalist id={list}>
        {suggestions.map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
      <Faults problems={problems} />
      <div>
        <Button small icon="add" onClick={add}>
          Add
        </Button>
      </div>
    </fieldset>
  );
}

function Columns({ relation }: { relation: Relation }) {
  return (
    <p class="small muted new-known">
      {Object.entries(relation.columns).map(([name, type], at) => (
        <span key={name}>
          {at > 0 && ", "}
          <code>{name}</code> {type}
        </span>
      ))}
    </p>
  );
}

/** What records are most often grouped by: their key. */
function keyOf(relations: readonly Relation[], name: string): string[] {
  const bounds = ["window_start", "window_end"];
  return relations.find((each) => each.name === name)?.key.filter((column) => !bounds.includes(column)) ?? [];
}

function nameFor(text: string, items: Item[]): string {
  const base = text.replace(/\(\*\)/, "").replace(/^\w+\./, "").replace(/[^A-Za-z0-9]+/g, "_").replace(/^_+|_+$/g, "").toLowerCase() || "value";
  let name = base;
  for (let number = 2; items.some((item) => item.name === name); number++) name = `${base}_${number}`;
  return name;
}

function callsOf(from: Relation | undefined): string[] {
  const numbers = Object.entries(from?.columns ?? {}).filter(([, type]) => /^(int|bigint|double|decimal)/.test(type));
  return ["count(*)", ...numbers.flatMap(([name]) => [`avg(${name})`, `sum(${name})`, `max(${name})`, `min(${name})`])];
}

function columnsOf(from: Relation | undefined, table: Relation | undefined): string[] {
  const own = Object.keys(from?.columns ?? {}).map((name) => (table === undefined ? name : `${from!.name}.${name}`));
  return table === undefined ? own : [...own, ...Object.keys(table.columns).map((name) => `${table.name}.${name}`), `${table.name}.$match`];
}

function outputColumns(checked: Validation): Record<string, string> {
  const output = checked.output as { columns?: Record<string, string>; relation?: { columns?: Record<string, string> } } | null;
  return output?.columns ?? output?.relation?.columns ?? {};
}

/** Ask the service about a definition; null: not now. */
function useValidation(definition: unknown): { checked: Validation | null; failure: Error | null; isChecking: boolean } {
  const text = definition === null ? null : JSON.stringify(definition);
  const { answer, isAsking } = useAsked(text, REST_MS, async (signal): Promise<{ checked: Validation | null; failure: Error | null }> => {
    try {
      return { checked: await api.post("/v1/validations", { body: text, type: "application/json", signal }), failure: null };
    } catch (failure) {
      if (isAborted(failure)) throw failure;
      return { checked: null, failure: failure as Error };
    }
  });
  return { checked: answer?.checked ?? null, failure: answer?.failure ?? null, isChecking: isAsking };
}
