/** Drivers: the processes that run queries, which each has, and what carries them. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { DriverItem, HeldQueryItem } from "~/api/types";
import { Badge, Empty, Facts, Note, Panel, Skeleton, StateBadge } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { VirtualTable, type Column, type Sorting } from "~/components/VirtualTable";
import { ago, compact, count, moment, percent, plural, words } from "~/format";
import { useState } from "preact/hooks";

const EVERY_MS = 5_000;
const COLUMNS: Column<HeldQueryItem>[] = [
  { id: "name", title: "Query", width: "minmax(120px, 2fr)", cell: (row) => <QueryLink name={row.name}>{row.internal ? `${row.name} (internal)` : row.name}</QueryLink>, sort: (row) => row.name },
  { id: "state", title: "State", width: "110px", cell: (row) => <StateBadge state={row.state} />, sort: (row) => row.state },
  { id: "carrier", title: "Carrier", width: "90px", from: 420, cell: (row) => carrierOf(row), sort: (row) => row.carrier?.kind ?? null },
  { id: "cpu", title: "CPU", width: "80px", align: "end", from: 620, cell: (row) => (row.carrier?.cpu_share == null ? "–" : percent(row.carrier.cpu_share)), sort: (row) => row.carrier?.cpu_share ?? null },
  { id: "largest", title: "Largest batch", width: "110px", align: "end", from: 760, cell: (row) => compact(row.carrier?.largest_batch), sort: (row) => row.carrier?.largest_batch ?? null },
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
  const carried = (kind: string): number => driver.queries.filter((query) => query.carrier?.kind === kind).length;
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
            ["Carriers", driver.queries.length === 0 ? "none" : `${plural(carried("shared"), "query shares", "queries share")}, ${plural(carried("own"), "has its own", "have their own")}${carried("trial") > 0 ? `, ${count(carried("trial"))} on trial` : ""}`],
            ["Id", <code key="id">{driver.id}</code>],
          ]}
        />
        {driver.queries.length > 0 && <VirtualTable label={`Queries of the driver ${driver.pid}`} rows={driver.queries} columns={COLUMNS} rowKey={(row) => row.name} rowHeight={38} sorting={sorting} onSort={setSorting} />}
      </div>
    </Panel>
  );
}

function carrierOf(row: HeldQueryItem) {
  if (row.carrier === null) return <span class="muted">not yet</span>;
  const about = { shared: "Light: it shares a carrier with others", own: "Its work is large: a carrier of its own", trial: "It was at work when a worker died, and does its next batch alone" };
  return (
    <Badge tone={row.carrier.kind === "own" ? "water" : row.carrier.kind === "trial" ? "warn" : "neutral"} title={about[row.carrier.kind]}>
      {row.carrier.kind}
    </Badge>
  );
}
