/** Drivers: the processes that run queries, which each has, and what carries them. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { DriverItem, LeasedQueryItem } from "~/api/types";
import { Badge, Empty, Facts, Note, Panel, Skeleton, StateBadge } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { VirtualTable, type Column, type Sorting } from "~/components/VirtualTable";
import { ago, compact, count, moment, percent, plural, words } from "~/format";
import { useState } from "preact/hooks";

const EVERY_MS = 5_000;
const COLUMNS: Column<LeasedQueryItem>[] = [
  { id: "name", title: "Query", width: "minmax(120px, 2fr)", cell: (row) => <QueryLink name={row.name}>{row.internal ? `${row.name} (internal)` : row.name}</QueryLink>, sort: (row) => row.name },
  { id: "state", title: "State", width: "110px", cell: (row) => <StateBadge state={row.state} />, sort: (row) => row.state },
  { id: "slot", title: "Slot", width: "90px", from: 420, cell: (row) => slotOf(row), sort: (row) => row.execution?.mode ?? null },
  { id: "cpu", title: "CPU", width: "80px", align: "end", from: 620, cell: (row) => (row.execution?.cpu_share == null ? "–" : percent(row.execution.cpu_share)), sort: (row) => row.execution?.cpu_share ?? null },
  { id: "largest", title: "Largest batch", width: "110px", align: "end", from: 760, cell: (row) => compact(row.execution?.largest_batch), sort: (row) => row.execution?.largest_batch ?? null },
  { id: "committed", title: "Committed", width: "120px", align: "end", from: 560, cell: (row) => ago(row.committed_at), sort: (row) => row.committed_at },
];

export function Drivers() {
  const found = useLive((signal) => api.get("/v1/drivers", { signal }), EVERY_MS, []);
  if (found.data === null) return found.error === null ? <Skeleton /> : <ErrorPanel error={found.error} retry={found.refresh} />;
  const { drivers, waiting } = found.data;
  return (
    <>
      {waiting.length > 0 && (
        <Note tone="warn">
          <strong>{plural(waiting.length, "query waits", "queries wait")} for a driver</strong>
          <span class="row wrap">
            {waiting.slice(0, 20).map((name) => (
              <QueryLink key={name} name={name} />
            ))}
            {waiting.length > 20 && <span class="muted">and {count(waiting.length - 20)} more</span>}
          </span>
        </Note>
      )}
      {drivers.length === 0 ? (
        <Panel flush>
          <Empty title="There is no driver" icon="system">
            <p>
              No query runs without a driver. <code>slackwater serve</code> starts one, except with <code>--no-driver</code>.
            </p>
          </Empty>
        </Panel>
      ) : (
        drivers.map((driver) => <One key={driver.id} driver={driver} />)
      )}
    </>
  );
}

function One({ driver }: { driver: DriverItem }) {
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const own = driver.queries.filter((query) => !query.internal).length;
  const countOf = (kind: string): number => driver.queries.filter((query) => query.execution?.mode === kind).length;
  return (
    <Panel
      id={`driver-${driver.id}`}
      title={
        <span class="row wrap">
          {driver.host} · {driver.pid}
          <Badge tone={driver.silent ? "bad" : driver.phase === "ready" ? "good" : "water"} dot moving={!driver.silent && driver.phase !== "ready"}>
            {driver.silent ? "silent" : driver.phase === "starting_jvm" ? "starting" : words(driver.phase)}
          </Badge>
        </span>
      }
      hint={`Heard of ${ago(driver.heartbeat_at)}, started ${moment(driver.started_at)}`}
    >
      <div class="stack">
        {driver.silent && (
          <Note tone="bad">
            <strong>It has not been heard of for longer than a lease lasts</strong>
            <span>Its host hangs or is gone; other drivers take its queries.</span>
          </Note>
        )}
        <Facts
          items={[
            ["Queries", `${count(own)} of at most ${count(driver.max_queries)}`],
            ["Slots", driver.queries.length === 0 ? "none" : `${plural(countOf("shared"), "query shares", "queries share")}, ${plural(countOf("dedicated"), "has its own", "have their own")}${countOf("isolated") > 0 ? `, ${count(countOf("isolated"))} on trial` : ""}`],
            ["Id", <code key="id">{driver.id}</code>],
          ]}
        />
        {driver.queries.length > 0 && <VirtualTable label={`Queries of the driver ${driver.pid}`} rows={driver.queries} columns={COLUMNS} rowKey={(row) => row.name} rowHeight={38} sorting={sorting} onSort={setSorting} />}
      </div>
    </Panel>
  );
}

function slotOf(row: LeasedQueryItem) {
  if (row.execution === null) return <span class="muted">not yet</span>;
  const about = { shared: "Its load is low: it shares a slot with others", dedicated: "Its load is high: it has a slot of its own", isolated: "It was at work when a worker died, and does its next batch alone" };
  return (
    <Badge tone={row.execution.mode === "dedicated" ? "water" : row.execution.mode === "isolated" ? "warn" : "neutral"} title={about[row.execution.mode]}>
      {row.execution.mode}
    </Badge>
  );
}
