/** A new source or query, step by step, with the statement and the definition that it makes beside it. */
import { useState } from "preact/hooks";
import { useLive } from "~/api/live";
import type { Relation } from "~/api/types";
import { Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Page } from "~/components/Page";
import { TabPanel, Tabs } from "~/components/Tabs";
import { place, setQuery } from "~/router";
import { listRelations } from "~/records/listing";
import { NewQuery } from "./NewQuery";
import { NewSource } from "./NewSource";
import "./new.css";

export default function New() {
  const tab = place.value.query.get("what") === "query" ? "query" : "source";
  const [tries, setTries] = useState(0);
  const relations = useLive<Relation[]>((signal) => listRelations(signal), null, [tries]);
  return (
    <Page title="New">
      <Tabs
        label="What to make"
        tabs={[
          { id: "source", title: "Source" },
          { id: "query", title: "Query" },
        ]}
        active={tab}
        onChange={(id) => setQuery({ what: id === "source" ? null : id })}
      />
      <TabPanel id={tab}>
        {relations.error !== null ? (
          <ErrorPanel error={relations.error} retry={() => setTries(tries + 1)} />
        ) : relations.data === null ? (
          <Skeleton />
        ) : tab === "source" ? (
          <NewSource relations={relations.data} />
        ) : (
          <NewQuery relations={relations.data} />
        )}
      </TabPanel>
    </Page>
  );
}
