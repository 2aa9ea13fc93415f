/** All queries: what needs attention first, then each with its numbers; and the graph of what reads what. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "~/api/client";
import type { OverviewQuery } from "~/api/types";
import { Button, Empty, Note, Panel, Skeleton, StateBadge, Tile } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink, RelationLink } from "~/components/links";
import { Reason } from "~/components/Reason";
import { Page } from "~/components/Page";
import { Sparkline } from "~/components/Sparkline";
import { Segments } from "~/components/Tabs";
import { notify, notifyError } from "~/components/toasts";
import { VirtualTable, type Column, type Sorting } from "~/components/VirtualTable";
import { compact, count, moment, NONE, plural, rate, span, words } from "~/format";
import { attention, historyOf, overview, overviewError, refreshOverview, troubleOfDelivery, urgency, useFastOverview, type Sample } from "~/overview";
import { Link, pathOf, place, setQuery } from "~/router";
import { screenFor } from "~/screens/registry";
import { may } from "~/session";
import { Graph } from "./Graph";
import "./overview.css";

type View = "queries" | "graph";

export default function Overview() {
  useFastOverview();
  const found = overview.value;
  const view: View = place.value.query.get("view") === "graph" ? "graph" : "queries";
  if (found === null) return <Page title="Overview">{overviewError.value ? <ErrorPanel error={overviewError.value} retry={refreshOverview} /> : <Skeleton lines={9} />}</Page>;
  if (found.queries.length === 0) return <Page title="Overview"><FirstSteps /></Page>;
  return (
    <Page
      title="Overview"
      actions={<Segments label="View" options={[["queries", "Queries"], ["graph", "Graph"]] as const} value={view} onChange={(chosen) => setQuery({ view: chosen === "queries" ? null : chosen })} />}
    >
      <div class="stack">
        <Totals queries={found.queries} />
        <Attention />
        {view === "graph" ? <Graph overview={found} /> : <Queries queries={found.queries} />}
      </div>
    </Page>
  );
}

function FirstSteps() {
  const form = screenFor("/new") !== null && may("write");
  return (
    <div class="panel">
      <Empty title="No queries yet">
        <p>
          A query reads streams and tables, waits for late records exactly as long as you tell it to, and writes a stream or a table that you can
          read over HTTP.
        </p>
        {form ? (
          <p>
            <Link class="button primary" to="/new">
              Make the first one
            </Link>
          </p>
        ) : (
          <p>
            <code>make demo</code> makes two of them over a month of flights and weather; <a href="/docs">every request</a> is described.
          </p>
        )}
      </Empty>
    </div>
  );
}

function Totals({ queries }: { queries: readonly OverviewQuery[] }) {
  const history = useRef<{ at: string; rate: number | null; lag: number; waiting: number }[]>([]);
  const at = overview.value!.at;
  const sum = (pick: (query: OverviewQuery) => number): number => queries.reduce((total, query) => total + pick(query), 0);
  const rates = queries.map((query) => historyOf(query.name).at(-1)?.rate ?? null);
  const total = rates.some((value) => value !== null) ? rates.reduce<number>((all, value) => all + (value ?? 0), 0) : null;
  const lag = sum((query) => query.lag ?? 0);
  const waiting = sum((query) => query.waiting);
  if (history.current.at(-1)?.at !== at) history.current = [...history.current, { at, rate: total, lag, waiting }].slice(-90);
  const running = queries.filter((query) => query.state === "running").length;
  const curve = (pick: "rate" | "lag" | "waiting", colour: string, label: string) => (
    <Sparkline values={history.current.map((one) => one[pick])} width={116} height={20} colour={colour} label={label} />
  );
  return (
    <div class="tiles" role="group" aria-label="All queries together">
      <Tile name="Running" value={`${count(running)} of ${count(queries.length)}`} more={states(queries)} />
      <Tile name="Read" value={rate(total)}>{curve("rate", "var(--accent)", "Records read a second")}</Tile>
      <Tile name="Behind" value={count(lag)}>{curve("lag", "var(--clock)", "Records not read yet")}</Tile>
      <Tile name="Waiting" value={count(waiting)}>{curve("waiting", "var(--water)", "Records that wait inside")}</Tile>
      <Tile name="Late" value={count(sum((query) => query.late))} more="since the queries began" />
    </div>
  );
}

function states(queries: readonly OverviewQuery[]): string {
  const counts = new Map<string, number>();
  for (const query of queries) if (query.state !== "running") counts.set(query.state, (counts.get(query.state) ?? 0) + 1);
  return counts.size === 0 ? "all of them" : [...counts].map(([state, number]) => `${number} ${state === "backoff" ? "retrying" : state}`).join(", ");
}

const SHOWN_TROUBLE = 5;

function Attention() {
  const [isWhole, setWhole] = useState(false);
  const all = attention.value;
  if (all.length === 0) return null;
  const shown = isWhole ? all : all.slice(0, SHOWN_TROUBLE);
  return (
    <Panel id="attention" title={`${plural(all.length, "query needs", "queries need")} attention`} flush>
      <ul class="trouble">
        {shown.map((query) => (
          <li key={query.name}>
            <div class="row wrap">
              <strong>
                <QueryLink name={query.name} />
              </strong>
              <StateBadge state={query.state} phase={query.phase} unreachable={query.conditions.includes("unreachable")} />
              <span class="muted small">for {span(Date.now() - new Date(query.state_since).getTime())}</span>
            </div>
            <Trouble query={query} />
            {(query.state === "failed" || query.delivery?.state === "stopped") && may("write") && <RestartButton name={query.name} />}
          </li>
        ))}
      </ul>
      {all.length > SHOWN_TROUBLE && (
        <div class="body">
          <Button small onClick={() => setWhole(!isWhole)}>{isWhole ? "Show fewer" : `Show all ${all.length}`}</Button>
        </div>
      )}
    </Panel>
  );
}

function Trouble({ query }: { query: OverviewQuery }) {
  if (query.reason !== null) return <Reason reason={query.reason} />;
  if (query.conditions.includes("unreachable")) return <p>Its driver has not been heard of. Another one takes it over by itself.</p>;
  const reason = troubleOfDelivery(query);
  if (reason === null) return null;
  return (
    <>
      <p>
        It runs, but its results are not delivered: {plural(query.delivery!.lag_rows, "row")} {query.delivery!.lag_rows === 1 ? "waits" : "wait"} for it.
      </p>
      <Reason reason={reason} />
    </>
  );
}

function RestartButton({ name }: { name: string }) {
  const [isBusy, setBusy] = useState(false);
  return (
    <Button
      small
      icon="restart"
      disabled={isBusy}
      onClick={() => {
        setBusy(true);
        api
          .post("/v1/queries/{name}/restart", { path: { name } })
          .then(() => notify(`${name} is started again.`))
          .catch(notifyError)
          .finally(() => {
            setBusy(false);
            refreshOverview();
          });
      }}
    >
      Restart
    </Button>
  );
}

const SECONDS = "over the last three minutes";

function curveColumn(
  id: string,
  title: string,
  value: (query: OverviewQuery) => number | null,
  shown: (query: OverviewQuery) => string,
  pick: (sample: Sample) => number | null,
  colour: string,
  from: number,
): Column<OverviewQuery> {
  return {
    id,
    title,
    width: "minmax(114px, 0.8fr)",
    align: "end",
    from,
    sort: value,
    cell: (query) => (
      <span class="curve">
        <Sparkline values={historyOf(query.name).map(pick)} width={48} height={18} colour={colour} label={`${title} ${SECONDS}`} />
        <span class="value">{shown(query)}</span>
      </span>
    ),
  };
}

const COLUMNS: readonly Column<OverviewQuery>[] = [
  { id: "name", title: "Query", width: "minmax(150px, 2fr)", sort: (query) => query.name, cell: (query) => query.name },
  {
    id: "state",
    title: "State",
    width: "minmax(96px, 1fr)",
    sort: (query) => query.state,
    cell: (query) => <StateBadge state={query.state} phase={query.phase} unreachable={query.conditions.includes("unreachable")} />,
  },
  {
    id: "writes",
    title: "Writes",
    width: "minmax(110px, 1.2fr)",
    from: 1_340,
    cell: (query) => {
      const made = overview.value?.relations.find((relation) => relation.name === query.writes);
      return made ? <RelationLink name={made.name} kind={made.kind} /> : NONE;
    },
  },
  curveColumn("rate", "Read", (query) => historyOf(query.name).at(-1)?.rate ?? null, (query) => rate(historyOf(query.name).at(-1)?.rate ?? null), (sample) => sample.rate, "var(--accent)", 480),
  curveColumn("lag", "Behind", (query) => query.lag, (query) => compact(query.lag), (sample) => sample.lag, "var(--clock)", 620),
  curveColumn("waiting", "Waiting", (query) => query.waiting, (query) => compact(query.waiting), (sample) => sample.waiting, "var(--water)", 750),
  curveColumn("late", "Late", (query) => query.late, (query) => compact(query.late), (sample) => sample.late, "var(--late)", 880),
  curveColumn("batch", "Batch", (query) => query.batch_ms, (query) => span(query.batch_ms), (sample) => sample.batchMs, "var(--muted)", 1_010),
  {
    id: "time",
    title: "Stream time",
    width: "150px",
    align: "end",
    from: 1_180,
    sort: (query) => query.stream_time_ms,
    cell: (query) => <span class="muted">{moment(query.stream_time_ms)}</span>,
  },
];

function Queries({ queries }: { queries: readonly OverviewQuery[] }) {
  const text = place.value.query.get("q") ?? "";
  const state = place.value.query.get("state") ?? "";
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const [hasInternal, setInternal] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "/" && !(event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement)) {
        event.preventDefault();
        search.current?.focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const internal = queries.filter((query) => query.internal).length;
  const known = useMemo(() => [...new Set(queries.map((query) => query.state))].sort(), [queries]);
  const shown = queries
    .filter((query) => (hasInternal || !query.internal || urgency(query) > 0) && (state === "" || query.state === state) && query.name.includes(text.trim().toLowerCase()))
    .sort((a, b) => urgency(b) - urgency(a));
  return (
    <div class="panel">
      <div class="filters">
        <input ref={search} class="input" type="search" aria-label="Find a query by its name" placeholder="Find by name ( / )" value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <select class="input" aria-label="State" value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
          <option value="">All states</option>
          {known.map((each) => (
            <option key={each} value={each}>
              {words(each === "backoff" ? "retrying" : each)}
            </option>
          ))}
        </select>
        {internal > 0 && (
          <label class="row small muted">
            <input type="checkbox" checked={hasInternal} onChange={(event) => setInternal(event.currentTarget.checked)} />
            {internal === 1 ? "1 query that keeps" : `${count(internal)} queries that keep`} the rows of sources
          </label>
        )}
        <span class="muted small grow num nowrap">{shown.length === queries.length ? plural(shown.length, "query", "queries") : `${count(shown.length)} of ${count(queries.length)}`}</span>
      </div>
      {shown.length === 0 ? (
        <Empty title="No query fits" icon="search">
          <Button small onClick={() => setQuery({ q: null, state: null })}>Show all</Button>
        </Empty>
      ) : (
        <VirtualTable label="Queries" rows={shown} columns={COLUMNS} rowKey={(query) => query.name} to={(query) => pathOf("/queries/:name", { name: query.name })} sorting={sorting} onSort={setSorting} />
      )}
      {overviewError.value !== null && <div class="filters"><Note tone="warn">These numbers are not current: {overviewError.value.message}</Note></div>}
    </div>
  );
}
