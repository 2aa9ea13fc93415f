/** What came too late: counts of all, those that are kept with filters, and replay of chosen ones or of all that fit. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { LateRecord } from "~/api/types";
import { Badge, Button, Empty, Note, Panel, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { useSettled } from "~/components/hooks";
import { notify, notifyError } from "~/components/toasts";
import { count, moment, NONE, plural, span, words } from "~/format";
import { may } from "~/session";

interface Filter {
  reason: string;
  input: string;
  from: string;
  to: string;
  column: string;
  value: string;
}

const NOTHING: Filter = { reason: "", input: "", from: "", to: "", column: "", value: "" };
const PAGE = 100;
/** These can go through the query again; the others would change what was final. */
const REPLAYABLE = new Set(["late_dropped", "late_diverted", "expired_dropped", "expired_diverted"]);

export function LateRecords({ name }: { name: string }) {
  const [filter, setFilter] = useState<Filter>(NOTHING);
  const settled = useSettled(filter);
  const [more, setMore] = useState<{ items: LateRecord[]; next: string | null } | null>(null);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [isAsking, setAsking] = useState<"chosen" | "all" | null>(null);
  const query = useMemo(
    () => ({
      reason: settled.reason,
      input: settled.input.trim(),
      from: settled.from.trim(),
      to: settled.to.trim(),
      limit: PAGE,
      ...(settled.column.trim() !== "" && settled.value !== "" ? { [`key.${settled.column.trim()}`]: settled.value } : {}),
    }),
    [settled],
  );
  const first = useLive((signal) => api.get("/v1/queries/{name}/late-records", { path: { name }, query, signal }), 5_000, [name, query]);
  const everything = useLive((signal) => api.get("/v1/queries/{name}/late-records", { path: { name }, query: { limit: 1 }, signal }), 10_000, [name]);
  useEffect(() => {
    setMore(null);
    setChosen(new Set());
  }, [query]);

  const seen = new Set(first.data?.items.map((record) => record.id));
  const items = [...(first.data?.items ?? []), ...(more?.items ?? []).filter((record) => !seen.has(record.id))];
  const next = more === null ? (first.data?.next ?? null) : more.next;
  const counters = everything.data?.counters ?? [];
  const known = counters.filter((counter) => /late|expired|closed|range/.test(counter.reason));
  const isFiltered = JSON.stringify(filter) !== JSON.stringify(NOTHING);
  const set = (part: Partial<Filter>): void => setFilter({ ...filter, ...part });
  const loadMore = (): void => {
    api
      .get("/v1/queries/{name}/late-records", { path: { name }, query: { ...query, cursor: next } })
      .then((page) => setMore({ items: [...(more?.items ?? []), ...page.items], next: page.next }))
      .catch(notifyError);
  };
  const toggle = (id: number): void => {
    const changed = new Set(chosen);
    if (!changed.delete(id)) changed.add(id);
    setChosen(changed);
  };
  const mayReplay = may("write") && counters.some((counter) => REPLAYABLE.has(counter.reason));
  return (
    <Panel
      id="late-records"
      title="Late records"
      hint="Records behind the grace of their operator. A query keeps as many as its definition says; it counts all."
      flush
      actions={
        mayReplay && (
          <>
            {chosen.size > 0 && <Button small kind="primary" onClick={() => setAsking("chosen")}>Replay {count(chosen.size)}</Button>}
            <Button small disabled={items.length === 0} onClick={() => setAsking("all")}>
              {isFiltered ? "Replay all that fit" : "Replay all"}
            </Button>
          </>
        )
      }
    >
      <div class="body stack">
        {known.length > 0 && (
          <div class="row wrap">
            {known.map((counter) => (
              <button key={counter.input + counter.reason} type="button" class="button small" aria-pressed={filter.reason === counter.reason && filter.input === counter.input} onClick={() => set({ reason: counter.reason, input: counter.input })}>
                {counter.input}: {words(counter.reason)} <strong>{count(counter.count)}</strong>
              </button>
            ))}
          </div>
        )}
        <div class="form-row">
          <label class="field">
            <span>Reason</span>
            <select class="input" value={filter.reason} onChange={(event) => set({ reason: event.currentTarget.value })}>
              <option value="">Any</option>
              {[...new Set([...counters.map((counter) => counter.reason), ...(filter.reason ? [filter.reason] : [])])].sort().map((reason) => (
                <option key={reason} value={reason}>
                  {words(reason)}
                </option>
              ))}
            </select>
          </label>
          <label class="field">
            <span>Validated by</span>
            <select class="input" value={filter.input} onChange={(event) => set({ input: event.currentTarget.value })}>
              <option value="">Any operator</option>
              {[...new Set([...counters.map((counter) => counter.input), ...(filter.input ? [filter.input] : [])])].sort().map((input) => (
                <option key={input} value={input}>
                  {input}
                </option>
              ))}
            </select>
          </label>
          <label class="field wide">
            <span>From (UTC)</span>
            <input class="input" placeholder="2013-01-01T00:00:00Z" value={filter.from} onInput={(event) => set({ from: event.currentTarget.value })} />
          </label>
          <label class="field wide">
            <span>To, not including</span>
            <input class="input" placeholder="2013-01-02T00:00:00Z" value={filter.to} onInput={(event) => set({ to: event.currentTarget.value })} />
          </label>
          <label class="field">
            <span>Column</span>
            <input class="input" placeholder="origin" value={filter.column} onInput={(event) => set({ column: event.currentTarget.value })} />
          </label>
          <label class="field">
            <span>is</span>
            <input class="input" placeholder="JFK" value={filter.value} onInput={(event) => set({ value: event.currentTarget.value })} />
          </label>
          {isFiltered && <Button onClick={() => setFilter(NOTHING)}>Clear</Button>}
        </div>
        {first.error !== null && <ErrorPanel error={first.error} />}
        {first.data === null ? (
          first.error === null && <Skeleton />
        ) : items.length === 0 ? (
          <Empty title={isFiltered ? "No late record fits" : "No late record is kept"} icon="good">
            <p>{isFiltered ? "Others may: clear the filters." : known.length > 0 ? plain("With the policy `join` late records are joined at once and only counted.") : "No record has come too late."}</p>
          </Empty>
        ) : (
          <div class="scroll-x" tabIndex={0}>
            <table class="plain as-blocks">
              <thead>
                <tr>
                  {mayReplay && <th scope="col"><span class="unseen">Chosen</span></th>}
                  <th scope="col">Event time</th>
                  <th scope="col" class="num">Behind</th>
                  <th scope="col">Validated by</th>
                  <th scope="col">Reason</th>
                  <th scope="col">Record</th>
                </tr>
              </thead>
              <tbody>
                {items.map((record) => (
                  <tr key={record.id}>
                    {mayReplay && (
                      <td>
                        <input type="checkbox" aria-label={`Choose late record ${record.id}`} disabled={!REPLAYABLE.has(record.reason)} title={REPLAYABLE.has(record.reason) ? undefined : "It cannot be replayed: it would change a final result"} checked={chosen.has(record.id)} onChange={() => toggle(record.id)} />
                      </td>
                    )}
                    <td class="nowrap" data-label="Event time">{moment(record.event_time_ms)}</td>
                    <td class="num nowrap" data-label="Behind">{record.stream_time_ms === null ? NONE : span(record.stream_time_ms - record.event_time_ms)}</td>
                    <td data-label="Validated by">{record.input}</td>
                    <td class="nowrap" data-label="Reason">
                      {words(record.reason)} {record.replayed_at !== null && <Badge tone="good" title={moment(record.replayed_at)}>replayed</Badge>}
                    </td>
                    <td class="wide">
                      <Pairs record={record.record} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {may("write") && !mayReplay && items.length > 0 && <p class="small muted">None of them can be replayed: they would change final results.</p>}
        {next !== null && <div><Button onClick={loadMore}>Show more</Button></div>}
      </div>
      {isAsking !== null && (
        <ReplayDialog
          name={name}
          body={isAsking === "chosen" ? { ids: [...chosen] } : { filter: filterBody(settled) }}
          what={isAsking === "chosen" ? plural(chosen.size, "late record") : isFiltered ? "all late records that fit the filter" : "all late records"}
          onClose={() => setAsking(null)}
          onDone={() => {
            setChosen(new Set());
            first.refresh();
          }}
        />
      )}
    </Panel>
  );
}

/** A record as its columns and values. The name of the input before a column is left out where there is but one. */
function Pairs({ record }: { record: unknown }) {
  if (typeof record !== "object" || record === null) return <span class="record">{String(record)}</span>;
  const columns = Object.entries(record);
  const inputs = new Set(columns.map(([column]) => column.split(".")[0]));
  return (
    <span class="pairs">
      {columns.map(([column, value]) => (
        <span key={column}>
          <span class="muted">{inputs.size === 1 ? column.slice(column.indexOf(".") + 1) : column}</span> {value === null ? <span class="muted">null</span> : typeof value === "object" ? JSON.stringify(value) : String(value)}
        </span>
      ))}
    </span>
  );
}

function filterBody(filter: Filter): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  if (filter.reason) body.reason = filter.reason;
  if (filter.input.trim()) body.input = filter.input.trim();
  if (filter.from.trim()) body.from = filter.from.trim();
  if (filter.to.trim()) body.to = filter.to.trim();
  if (filter.column.trim() && filter.value) body.key = { [filter.column.trim()]: filter.value };
  return body;
}

function ReplayDialog({ name, body, what, onClose, onDone }: { name: string; body: Record<string, unknown>; what: string; onClose: () => void; onDone: () => void }) {
  const [isAgain, setAgain] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const go = (): void => {
    setBusy(true);
    api
      .post("/v1/queries/{name}/late-records/replay", { path: { name }, body: { ...body, again: isAgain } })
      .then((done) => {
        const left = [done.already_replayed > 0 ? `${count(done.already_replayed)} had been replayed before` : "", done.refused_count > 0 ? `${count(done.refused_count)} cannot be replayed` : "", done.more ? "more fit: replay again" : ""].filter(Boolean).join("; ");
        notify(`${plural(done.accepted, "record goes", "records go")} through ${name} again with its next batch.`, "good", left || undefined);
        onDone();
        onClose();
      })
      .catch((failure: Error) => {
        setError(failure);
        setBusy(false);
      });
  };
  return (
    <Dialog
      title={`Replay ${what}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={isBusy} onClick={go}>
            Replay
          </Button>
        </>
      }
    >
      <p>The query processes each of them once more and joins it as of its own event time. Their results are marked as replayed.</p>
      <Note>A record that a closed window refused cannot be replayed: it would change a final result.</Note>
      <label class="row">
        <input type="checkbox" checked={isAgain} onChange={(event) => setAgain(event.currentTarget.checked)} />
        Also those that were replayed before
      </label>
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}
