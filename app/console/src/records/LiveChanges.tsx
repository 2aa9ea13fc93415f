/** What happens to a relation from now on: records of a stream, upserts and deletes of a table. */
import { useMemo, useState } from "preact/hooks";
import { Badge, Button, Empty, Panel } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { count, moment, plural, rate } from "~/format";
import type { Relation } from "~/api/types";
import { useChanging } from "./changing";
import { RowGrid, type GridColumn } from "./RowGrid";

const MOST = 1_000;

export function LiveChanges({ relation }: { relation: Relation }) {
  const [isPaused, setPaused] = useState(false);
  const path = relation.kind === "table" ? "/v1/tables/{name}/changes" : "/v1/streams/{name}/changes";
  const live = useChanging(isPaused ? null : path, MOST, relation.name);
  const isTable = relation.kind === "table";

  const columns = useMemo<GridColumn[]>(
    () => [
      { name: "event time" },
      ...(isTable ? [{ name: "change" }] : []),
      ...Object.entries(relation.columns).map(([name, type]) => ({ name, type, isKey: relation.key.includes(name) })),
    ],
    [relation],
  );
  const rows = live.changes.map((change) => {
    const values = { ...change.key, ...change.row };
    const shown = Object.keys(relation.columns).map((name) => values[name] ?? null);
    return {
      id: String(change.number),
      values: [moment(change.event_time_ms), ...(isTable ? [change.op] : []), ...shown],
      tone: change.op === "delete" ? ("gone" as const) : change.number > live.total - 50 ? ("new" as const) : undefined,
    };
  });

  return (
    <Panel
      flush
      id="live"
      title={
        <span class="row">
          Live
          <Badge tone={isPaused ? "neutral" : live.isConnected ? "good" : "warn"} dot moving={!isPaused && live.isConnected}>
            {isPaused ? "paused" : live.isConnected ? "following" : "connecting"}
          </Badge>
        </span>
      }
      hint={`${plural(live.total, isTable ? "change" : "record")} since this page was opened, ${rate(live.perSecond)}${live.total > MOST ? `; the newest ${count(MOST)} are here` : ""}`}
      actions={
        <Button small icon={isPaused ? "play" : "pause"} onClick={() => setPaused(!isPaused)}>
          {isPaused ? "Resume" : "Pause"}
        </Button>
      }
    >
      {live.error !== null && !isPaused ? (
        <div class="body">
          <ErrorPanel error={live.error} />
        </div>
      ) : rows.length === 0 ? (
        <Empty title={isTable ? "No change since this page was opened" : "No record since this page was opened"}>
          <p>{isTable ? "Each change appears here when it is committed." : "Each record appears here when it is appended."}</p>
        </Empty>
      ) : (
        <RowGrid label={isTable ? "Changes, newest first" : "Records, newest first"} columns={columns} rows={rows} />
      )}
    </Panel>
  );
}
