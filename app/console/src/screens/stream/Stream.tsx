/** A stream: its records by offset, records as they come, what was refused, and more records from here. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { Relation } from "~/api/types";
import { Badge, Empty, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { Page } from "~/components/Page";
import { TabPanel, Tabs, type Tab } from "~/components/Tabs";
import { About } from "~/records/About";
import { Append } from "~/records/Append";
import { LiveChanges } from "~/records/LiveChanges";
import { Rejects } from "~/records/Rejects";
import { isKeptHere, takesRecords } from "~/records/taking";
import { Link, place, setQuery } from "~/router";
import type { ScreenProps } from "../registry";
import { Records } from "./Records";

export default function Stream({ params }: ScreenProps) {
  const name = params.name!;
  const found = useLive((signal) => api.get("/v1/streams/{name}", { path: { name }, signal }), 15_000, [name]);
  const relation = found.data;
  if (relation === null)
    return (
      <Page title={name} crumbs={<Link to="/relations">Streams and tables</Link>}>
        {found.error === null ? <Skeleton lines={8} /> : <ErrorPanel error={found.error} retry={found.refresh} />}
      </Page>
    );
  return <Found relation={relation} refresh={found.refresh} />;
}

function Found({ relation, refresh }: { relation: Relation; refresh: () => void }) {
  const isSource = relation.origin === "source";
  const tabs: Tab[] = [
    { id: "records", title: "Records" },
    ...(isKeptHere(relation) ? [{ id: "live", title: "Live" }] : []),
    ...(isSource ? [{ id: "rejects", title: "Rejects" }] : []),
    ...(takesRecords(relation) ? [{ id: "append", title: "Append" }] : []),
    { id: "about", title: "About" },
  ];
  const wanted = place.value.query.get("tab") ?? "records";
  const tab = tabs.some((each) => each.id === wanted) ? wanted : "records";
  return (
    <Page
      title={relation.name}
      crumbs={<Link to="/relations">Streams and tables</Link>}
      badges={
        <>
          <Badge>stream</Badge>
          {isSource && <Badge>source</Badge>}
        </>
      }
      actions={
        <>
          {relation.produced_by !== null && (
            <span class="muted small">
              made by <QueryLink name={relation.produced_by} />
            </span>
          )}
          <Link class="button" to={`/sql?sql=${encodeURIComponent(`SELECT * FROM ${relation.name} EMIT CHANGES;`)}`}>
            Follow in SQL
          </Link>
        </>
      }
    >
      <Tabs label="Parts of the stream" tabs={tabs} active={tab} onChange={(id) => setQuery({ tab: id === "records" ? null : id })} />
      <TabPanel id={tab}>
        {tab === "records" && (isKeptHere(relation) ? <Records relation={relation} /> : <Elsewhere relation={relation} />)}
        {tab === "live" && <LiveChanges relation={relation} />}
        {tab === "rejects" && <Rejects kind="stream" name={relation.name} />}
        {tab === "append" && <Append relation={relation} onAppended={refresh} />}
        {tab === "about" && <About relation={relation} />}
      </TabPanel>
    </Page>
  );
}

/** Records of topics and files stay where they are: queries read them there. */
function Elsewhere({ relation }: { relation: Relation }) {
  const where = (relation.definition as { connector: { type: string; topic?: string; path?: string } }).connector;
  return (
    <Panel flush>
      <Empty title={where.type === "kafka" ? `Its records are in the topic ${where.topic}` : `Its records are in the files of ${where.path}`}>
        <p>Queries read them there; no copy is kept here. To look at them as they come, follow the stream in SQL.</p>
      </Empty>
    </Panel>
  );
}
