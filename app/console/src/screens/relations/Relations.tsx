/** All streams and tables: who writes them, who reads them, how much comes. */
import { useState } from "preact/hooks";
import { useLive } from "~/api/live";
import type { Relation } from "~/api/types";
import { Badge, Empty, Panel, Skeleton } from "~/components/basics";
import { Page } from "~/components/Page";
import { Segments } from "~/components/Tabs";
import { VirtualTable, type Column, type Sorting } from "~/components/VirtualTable";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { compact, plural, rate } from "~/format";
import { flowOf, useFastOverview } from "~/overview";
import { listRelations } from "~/records/listing";
import { Link, pathOf, place, setQuery } from "~/router";
import { may } from "~/session";

const EVERY_MS = 15_000;

type Kind = "all" | "stream" | "table";

const COLUMNS: Column<Relation>[] = [
  { id: "name", title: "Name", width: "minmax(110px, 2fr)", cell: (row) => row.name, sort: (row) => row.name },
  { id: "kind", title: "Kind", width: "80px", cell: (row) => <Badge>{row.kind}</Badge>, sort: (row) => row.kind },
  { id: "made", title: "Made by", width: "minmax(100px, 1.4fr)", from: 640, cell: (row) => (row.produced_by === null ? <span class="muted">{row.origin === "source" ? "source" : "a query that is gone"}</span> : <QueryLink name={row.produced_by} />), sort: (row) => row.produced_by },
  { id: "read", title: "Read by", width: "84px", align: "end", from: 560, cell: (row) => (row.read_by.length === 0 ? <span class="muted">no query</span> : plural(row.read_by.length, "query", "queries")), sort: (row) => row.read_by.length },
  { id: "columns", title: "Columns", width: "80px", align: "end", from: 760, cell: (row) => Object.keys(row.columns).length, sort: (row) => Object.keys(row.columns).length },
  { id: "held", title: "In the log", width: "84px", align: "end", cell: (row) => compact(held(row)), sort: (row) => held(row) },
  { id: "flow", title: "Rate", width: "80px", align: "end", from: 480, cell: (row) => rate(flowOf(row.name)), sort: (row) => flowOf(row.name) },
];

export default function Relations() {
  useFastOverview();
  const listed = useLive<Relation[]>((signal) => listRelations(signal), EVERY_MS, []);
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const kind = (place.value.query.get("kind") ?? "all") as Kind;
  const text = place.value.query.get("q") ?? "";
  const found = listed.data;
  const shown = (found ?? []).filter((each) => (kind === "all" || each.kind === kind) && each.name.includes(text.toLowerCase()));
  return (
    <Page title="Streams and tables" actions={may("write") && <Link class="button primary" to="/new">New</Link>}>
      {found === null ? (
        listed.error === null ? <Skeleton /> : <ErrorPanel error={listed.error} retry={listed.refresh} />
      ) : found.length === 0 ? (
        <Panel flush>
          <Empty title="There is no stream and no table yet">
            <p>A source is where records come from: a stream that is appended to, or a table that is upserted. Queries make further ones of them.</p>
            {may("write") && (
              <p>
                <Link to="/new">Make the first source</Link>
              </p>
            )}
          </Empty>
        </Panel>
      ) : (
        <div class="stack">
          <div class="row wrap">
            <Segments<Kind>
              label="Kind"
              value={kind}
              options={[
                ["all", "All"],
                ["stream", "Streams"],
                ["table", "Tables"],
              ]}
              onChange={(next) => setQuery({ kind: next === "all" ? null : next })}
            />
            <input class="input" style={{ maxWidth: "280px" }} type="search" aria-label="Find by name" placeholder="Find by name" value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
          </div>
          <Panel flush>
            {shown.length === 0 ? (
              <Empty title="Nothing has this name" icon="search" />
            ) : (
              <VirtualTable label="Streams and tables" rows={shown} columns={COLUMNS} rowKey={(row) => row.name} to={(row) => pathOf(`/${row.kind}s/:name`, { name: row.name })} sorting={sorting} onSort={setSorting} />
            )}
          </Panel>
        </div>
      )}
    </Page>
  );
}

/** How many records, or changes of rows, its log holds; null: it has none of its own. */
function held(relation: Relation): number | null {
  return relation.partitions === null ? null : relation.partitions.reduce((sum, part) => sum + part.next_offset - part.start_offset, 0);
}
