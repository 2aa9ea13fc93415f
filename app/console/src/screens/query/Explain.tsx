/** Why there is no row yet for a key and a time, or why this one: the sentence, the steps to it, and where it stands on the tide chart. */
import { useEffect, useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import { RELATION_PATH } from "~/api/paths";
import type { Explanation, Lateness, OneQuery, Status } from "~/api/types";
import { Badge, Button, Note, Panel, Skeleton, type Tone } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { moment, words } from "~/format";
import { overview, relationOf } from "~/overview";
import { Tide, type Mark } from "./Tide";

interface Part {
  column: string;
  value: string;
}

const TONES: Record<string, Tone> = { shown: "good", final: "good", joined_version: "good", late: "bad", rejected: "bad", buffered_until: "water", window_open_until: "water", not_read_yet: "warn", expired: "warn" };

/** A late record that was joined after all has its row: it wants a look, and is no fault. */
function toneOf({ code, reason }: Explanation["answer"]): Tone {
  return reason === "late_joined" ? "warn" : (TONES[code] ?? "neutral");
}

export function Explain({ query, status, lateness }: { query: OneQuery; status: Status; lateness: Lateness | null }) {
  const source = query.definition.from as { stream?: string | null; table?: string | null };
  const relation = relationOf(source.stream ?? source.table ?? "");
  const columns = useLive(
    async (signal) => (relation === undefined ? null : await api.get(RELATION_PATH[relation.kind], { path: { name: relation.name }, signal })),
    null,
    [relation?.name],
  );
  const [parts, setParts] = useState<Part[]>([]);
  const [at, setAt] = useState("");
  const [asked, setAsked] = useState<Explanation | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);

  const grouped = (query.definition.group_by ?? []) as string[];
  useEffect(() => {
    if (columns.data === null || parts.length > 0) return;
    const plain = grouped.filter((column) => column in columns.data!.columns);
    const first = plain.length > 0 ? plain : columns.data.key.length > 0 ? columns.data.key : Object.keys(columns.data.columns).slice(0, 1);
    setParts(first.map((column) => ({ column, value: "" })));
  }, [columns.data]);
  useEffect(() => {
    if (at === "" && status.stream_time_ms !== null) setAt(new Date(status.stream_time_ms).toISOString().replace(".000Z", "Z"));
  }, [status.stream_time_ms]);

  const ask = (): void => {
    setBusy(true);
    setError(null);
    const key = Object.fromEntries(parts.filter((part) => part.column !== "").map((part) => [`key.${part.column}`, part.value]));
    api
      .get("/v1/queries/{name}/explain", { path: { name: query.name }, query: { ...key, at: at.trim() } })
      .then(setAsked)
      .catch((failure: Error) => {
        setAsked(null);
        setError(failure);
      })
      .finally(() => setBusy(false));
  };
  const set = (index: number, part: Partial<Part>): void => setParts(parts.map((one, place) => (place === index ? { ...one, ...part } : one)));
  const known = columns.data === null ? [] : Object.keys(columns.data.columns);
  overview.value;
  return (
    <>
      <Panel id="explain" title="Why is there no row, or why this one?" hint="Ask by the query's key and an event time">
        <form
          class="form-row"
          onSubmit={(event) => {
            event.preventDefault();
            ask();
          }}
        >
          {columns.isLoading && <Skeleton lines={1} />}
          {parts.map((part, index) => (
            <div key={index} class="field">
              <label class="label" for={`explain-column-${index}`}>Column</label>
              <div class="row">
                <select id={`explain-column-${index}`} class="input" value={part.column} onChange={(event) => set(index, { column: event.currentTarget.value })}>
                  {[...new Set([part.column, ...known])].map((column) => (
                    <option key={column}>{column}</option>
                  ))}
                </select>
                <span class="muted">=</span>
                <input class="input" aria-label={`Value of ${part.column}`} value={part.value} required onInput={(event) => set(index, { value: event.currentTarget.value })} />
              </div>
            </div>
          ))}
          <label class="field wide">
            <span>Event time (UTC)</span>
            <input class="input" value={at} required placeholder="2013-01-01T12:00:00Z" onInput={(event) => setAt(event.currentTarget.value)} />
          </label>
          <Button onClick={() => setParts([...parts, { column: known.find((column) => !parts.some((part) => part.column === column)) ?? "", value: "" }])} icon="add">
            Column
          </Button>
          <Button kind="primary" type="submit" disabled={isBusy || parts.length === 0}>
            Explain
          </Button>
        </form>
      </Panel>
      {error !== null && <ErrorPanel error={error} />}
      {asked !== null && <Answer asked={asked} />}
      {asked !== null && <Tide name={query.name} status={status} lateness={lateness} mark={markOf(asked)} />}
    </>
  );
}

function Answer({ asked }: { asked: Explanation }) {
  const { answer } = asked;
  return (
    <Panel id="answer" title="Answer" actions={<Badge tone={toneOf(answer)} dot>{words(answer.code)}</Badge>}>
      <div class="stack" role="status">
        <p class="answer">{answer.sentence}</p>
        {asked.stale && <Note tone="warn">The query does not run: this is how it stood when it last committed, {moment(asked.committed_at)}.</Note>}
        <ol class="steps" aria-label="Steps to the answer">
          {asked.steps.map((step, index) => (
            <li key={index}>
              {step.sentence}{" "}
              <span class="muted small">
                {step.operator ?? words(step.kind)}
                {step.task !== null && `, task ${step.task}`}
                {step.reason !== null && `, ${words(step.reason)}`}
              </span>
            </li>
          ))}
        </ol>
      </div>
    </Panel>
  );
}

function markOf(asked: Explanation): Mark {
  const { answer } = asked;
  const judged = asked.steps.find((step) => step.operator !== null) ?? answer;
  return { operator: answer.operator ?? judged.operator, atMs: asked.at_ms, untilMs: answer.clock === "stream_time" ? answer.until_ms : null };
}
