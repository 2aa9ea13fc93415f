/** One query: what it does now, the tide chart, its definition, how late records come, what was late, what happened, why a row is not there. */
import { useMemo } from "preact/hooks";
import { api, ApiError } from "~/api/client";
import { useLive } from "~/api/live";
import { Badge, Empty, Note, Skeleton, StateBadge } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { QueryLink, RelationLink } from "~/components/links";
import { Reason } from "~/components/Reason";
import { Page } from "~/components/Page";
import { TabPanel, Tabs } from "~/components/Tabs";
import type { Status } from "~/api/types";
import { compact, plural, until } from "~/format";
import { overview, relationOf, useFastOverview } from "~/overview";
import { Link, pathOf, place, setQuery } from "~/router";
import type { ScreenProps } from "../registry";
import { Actions } from "./Actions";
import { Definition } from "./Definition";
import { Explain } from "./Explain";
import { familyOf, Forks } from "./Forks";
import { History } from "./History";
import { LatenessTab } from "./Lateness";
import { LateRecords } from "./LateRecords";
import { Now } from "./Now";
import { Rejects } from "./Rejects";
import "./query.css";

/** What a part of the screen is about, in the guide. */
const GUIDE: Record<string, string> = {
  definition: "reference/definitions/",
  lateness: "concepts/grace/",
  late: "guides/late-data/",
  rejects: "reference/http/records/",
  forks: "guides/corrections/",
  history: "operations/monitoring/",
  explain: "guides/late-data/",
};

export default function Query({ params }: ScreenProps) {
  const name = params.name!;
  useFastOverview();
  const definition = useLive((signal) => api.get("/v1/queries/{name}", { path: { name }, signal }), 10_000, [name]);
  const status = useLive((signal) => api.get("/v1/queries/{name}/status", { path: { name }, query: { tasks: true }, signal }), 1_000, [name]);
  const lateness = useLive((signal) => api.get("/v1/queries/{name}/lateness", { path: { name }, signal }), 5_000, [name]);
  const glance = overview.value?.queries.find((query) => query.name === name);
  const family = familyOf(name);
  const tab = place.value.query.get("tab") ?? "now";
  const late = glance?.late ?? 0;
  const refresh = useMemo(
    () => () => {
      definition.refresh();
      status.refresh();
      lateness.refresh();
    },
    [definition.refresh, status.refresh, lateness.refresh],
  );

  const crumbs = <Link to="/">Queries</Link>;
  const lost = [definition.error, status.error].find((error) => error instanceof ApiError && error.status === 404);
  if (lost !== undefined)
    return (
      <Page title={name} crumbs={crumbs}>
        <Empty title={`There is no query ${name}`}>
          <p>
            It was deleted, or it never existed. <Link to="/">See those there are</Link>
          </p>
        </Empty>
      </Page>
    );
  if (definition.data === null || status.data === null) {
    const failure = definition.error ?? status.error;
    return (
      <Page title={name} crumbs={crumbs}>
        {failure === null ? <Skeleton lines={9} /> : <ErrorPanel error={failure} retry={refresh} />}
      </Page>
    );
  }
  const query = definition.data;
  const now = status.data;
  return (
    <Page
      title={name}
      crumbs={crumbs}
      guide={GUIDE[tab]}
      badges={
        <>
          <StateBadge state={now.state} phase={now.phase} unreachable={now.conditions.includes("unreachable")} />
          {now.desired_state !== now.state && now.state !== "failed" && <Badge>wanted: {now.desired_state}</Badge>}
          {query.internal && <Badge title="It keeps the rows of a source and follows that table's definition">internal</Badge>}
        </>
      }
      actions={<Actions query={query} status={now} onDone={refresh} />}
    >
      <div class="stack">
        <Flow reads={glance?.reads.map((read) => read.relation) ?? []} writes={glance?.writes ?? null} />
        {now.reason !== null && (
          <Note tone={now.state === "failed" ? "bad" : "warn"}>
            <Reason reason={now.reason}>
              <Attempts status={now} />
            </Reason>
          </Note>
        )}
        {status.error !== null && <ErrorPanel error={status.error} title="These numbers are not current" />}
        {query.fork_of !== null && (
          <Note>
            <span>
              A fork of <QueryLink name={query.fork_of.query} />
              {query.fork_of.batch_id === null ? ", which had committed nothing yet: it started from the beginning." : `, as of its batch ${query.fork_of.batch_id}.`}{" "}
              {family !== null && <Link to={`${pathOf("/queries/:name", { name })}?tab=forks`}>Compare the two</Link>}
            </span>
          </Note>
        )}
      </div>
      <div style={{ height: "14px" }} />
      <Tabs
        label="Parts of the query"
        active={tab}
        onChange={(id) => setQuery({ tab: id === "now" ? null : id })}
        tabs={[
          { id: "now", title: "Now" },
          { id: "definition", title: "Definition" },
          { id: "lateness", title: "Lateness" },
          { id: "late", title: "Late records", count: late > 0 ? compact(late) : null },
          { id: "rejects", title: "Rejects" },
          ...(family === null ? [] : [{ id: "forks", title: family.original === name ? "Forks" : "Compare" }]),
          { id: "history", title: "History" },
          { id: "explain", title: "Explain" },
        ]}
      />
      <TabPanel id={tab}>
        {tab === "now" && <Now name={name} status={now} lateness={lateness.data} />}
        {tab === "definition" && <Definition query={query} status={now} />}
        {tab === "lateness" && <LatenessTab query={query} lateness={lateness} onApplied={refresh} />}
        {tab === "late" && <LateRecords name={name} />}
        {tab === "rejects" && <Rejects relations={glance?.reads.map((read) => read.relation) ?? []} />}
        {tab === "forks" && <Forks name={name} />}
        {tab === "history" && <History name={name} />}
        {tab === "explain" && <Explain query={query} status={now} lateness={lateness.data} />}
      </TabPanel>
    </Page>
  );
}

function Attempts({ status }: { status: Status }) {
  const parts = [
    status.attempt > 0 ? `${plural(status.attempt, "launch", "launches")} failed` : null,
    status.state === "starting" ? "it is being tried again" : null,
    status.next_attempt_at === null ? null : `tried again in ${until(status.next_attempt_at)}`,
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : <span class="muted"> · {parts.join(" · ")}</span>;
}

function Flow({ reads, writes }: { reads: readonly string[]; writes: string | null }) {
  if (reads.length === 0 && writes === null) return null;
  const one = (name: string) => {
    const relation = relationOf(name);
    return relation ? <RelationLink key={name} name={name} kind={relation.kind} /> : <span key={name}>{name}</span>;
  };
  return (
    <p class="muted flow-line">
      reads {reads.map((name, index) => [index > 0 ? ", " : "", one(name)])}
      {writes !== null && <> → writes {one(writes)}</>}
      {writes !== null && (
        <>
          {" · "}
          <Link to={`/?view=graph&around=${encodeURIComponent(writes)}`}>graph</Link>
        </>
      )}
    </p>
  );
}
