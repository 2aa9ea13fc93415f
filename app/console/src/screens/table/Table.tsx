/** A table: its rows now or at another time, what happens to them, what it is. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { Relation } from "~/api/types";
import { Badge, Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { Page } from "~/components/Page";
import { TabPanel, Tabs, type Tab } from "~/components/Tabs";
import { About } from "~/records/About";
import { Append } from "~/records/Append";
import { LiveChanges } from "~/records/LiveChanges";
import { Rejects } from "~/records/Rejects";
import { takesRecords } from "~/records/taking";
import { Link, place, setQuery } from "~/router";
import type { ScreenProps } from "../registry";
import { Rows } from "./Rows";

export default function Table({ params }: ScreenProps) {
  const name = params.name!;
  const found = useLive((signal) => api.get("/v1/tables/{name}", { path: { name }, signal }), 15_000, [name]);
  const relation = found.data;
  if (relation === null)
    return (
      <Page title={name} crumbs={<Crumbs />}>
        {found.error === null ? <Skeleton lines={8} /> : <ErrorPanel error={found.error} retry={found.refresh} />}
      </Page>
    );
  return <Found relation={relation} refresh={found.refresh} />;
}

function Crumbs() {
  return <Link to="/relations">Streams and tables</Link>;
}

function Found({ relation, refresh }: { relation: Relation; refresh: () => void }) {
  const isWindowed = relation.key.includes("window_start") && relation.key.includes("window_end");
  const isSource = relation.origin === "source";
  const tabs: Tab[] = [
    { id: "rows", title: "Rows" },
    { id: "live", title: "Live" },
    ...(isSource ? [{ id: "rejects", title: "Rejects" }] : []),
    ...(takesRecords(relation) ? [{ id: "append", title: "Append" }] : []),
    { id: "about", title: "About" },
  ];
  const wanted = place.value.query.get("tab") ?? "rows";
  const tab = tabs.some((each) => each.id === wanted) ? wanted : "rows";
  return (
    <Page
      title={relation.name}
      crumbs={<Crumbs />}
      badges={
        <>
          <Badge>table</Badge>
          {isSource ? <Badge>source</Badge> : null}
          {isWindowed && <Badge tone="water">windows</Badge>}
        </>
      }
      actions={
        <>
          {relation.produced_by !== null && (
            <span class="muted small">
              made by <QueryLink name={relation.produced_by} />
            </span>
          )}
          <Link class="button" to={`/sql?sql=${encodeURIComponent(`SELECT * FROM ${relation.name} LIMIT 100;`)}`}>
            Ask in SQL
          </Link>
        </>
      }
    >
      <Tabs label="Parts of the table" tabs={tabs} active={tab} onChange={(id) => setQuery({ tab: id === "rows" ? null : id })} />
      <TabPanel id={tab}>
        {tab === "rows" && <Rows relation={relation} isWindowed={isWindowed} />}
        {tab === "live" && <LiveChanges relation={relation} />}
        {tab === "rejects" && <Rejects kind="table" name={relation.name} />}
        {tab === "append" && <Append relation={relation} onAppended={refresh} />}
        {tab === "about" && <About relation={relation} />}
      </TabPanel>
    </Page>
  );
}
