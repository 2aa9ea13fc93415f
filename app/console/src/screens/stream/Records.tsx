/** A stream's records by offset: a page of them, from the newest back to the oldest that is kept. */
import { useMemo, useState } from "preact/hooks";
import { api, ApiError } from "~/api/client";
import { useLive } from "~/api/live";
import type { RecordsAnswer, Relation } from "~/api/types";
import { Badge, Button, Empty, Panel, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Code } from "~/components/Code";
import { count, moment } from "~/format";
import { place, setQuery } from "~/router";
import { RowGrid, type GridColumn } from "~/records/RowGrid";

const PAGE = 200;
const EVERY_MS = 5_000;

export function Records({ relation }: { relation: Relation }) {
  const query = place.value.query;
  const parts = relation.origin === "source" ? (relation.partitions ?? []) : [];
  const partition = parts.length === 0 ? null : Number(query.get("partition") ?? parts[0]!.partition);
  const part = query.get("part");
  const asked = query.get("offset");
  const offset = asked === null || !/^\d+$/.test(asked) ? null : Number(asked);
  const [chosen, setChosen] = useState<Record<string, unknown> | null>(null);

  const found = useLive<RecordsAnswer>(
    async (signal) => {
      const ask = (from: number | null, limit: number) =>
        api.get("/v1/streams/{name}/records", { path: { name: relation.name }, query: { partition, part, offset: from, limit }, signal });
      if (offset !== null) return ask(offset, PAGE);
      // The end is not known before somebody is asked for it; it is most often where it was.
      const end = (await ask(null, 1)).end_offset;
      if (end <= PAGE) return ask(null, PAGE);
      return ask(end - PAGE, PAGE);
    },
    offset === null ? EVERY_MS : null,
    [relation.name, partition, part, offset],
  );

  const answer = found.data;
  const columns = useMemo<GridColumn[]>(
    () => [{ name: "offset", type: "bigint" }, { name: "event time" }, ...Object.entries(relation.columns).map(([name, type]) => ({ name, type, isKey: relation.key.includes(name) }))],
    [relation],
  );
  const records = answer === null ? [] : offset === null ? [...answer.records].reverse() : answer.records;
  const rows = records.map((record) => ({
    id: String(record["$offset"]),
    values: [record["$offset"], moment(record["$event_time_ms"] as number), ...Object.keys(relation.columns).map((name) => record[name] ?? null)],
    tone: record["$op"] === "delete" ? ("gone" as const) : undefined,
  }));
  const first = answer?.records[0]?.["$offset"] as number | undefined;
  const isAtEnd = answer !== null && answer.next_offset >= answer.end_offset;
  const go = (to: number | null): void => setQuery({ offset: to === null ? null : String(Math.max(0, to)) });

  return (
    <>
      <div class="row wrap">
        {parts.length > 1 && (
          <label class="row">
            <span class="muted small">Partition</span>
            <select class="input" style={{ width: "auto" }} value={String(partition)} onChange={(event) => setQuery({ partition: event.currentTarget.value, offset: null })}>
              {parts.map((each) => (
                <option key={each.partition} value={String(each.partition)}>
                  {each.partition} ({count(each.next_offset - each.start_offset)})
                </option>
              ))}
            </select>
          </label>
        )}
        {relation.parts.length > 0 && (
          <label class="row">
            <span class="muted small">Written by</span>
            <select class="input" style={{ width: "auto" }} value={part ?? ""} onChange={(event) => setQuery({ part: event.currentTarget.value || null, partition: null, offset: null })}>
              <option value="">whoever appends</option>
              {relation.parts.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <div class="row" role="group" aria-label="Where in the stream">
          <Button small disabled={first === 0 || rows.length === 0} onClick={() => go(parts.find((each) => each.partition === partition)?.start_offset ?? 0)}>
            Oldest
          </Button>
          <Button small disabled={first === undefined || first === 0} onClick={() => go((first ?? PAGE) - PAGE)}>
            Older
          </Button>
          <Button small disabled={offset === null || isAtEnd} onClick={() => go(answer?.next_offset ?? null)}>
            Newer
          </Button>
          <Button small disabled={offset === null} onClick={() => go(null)}>
            Newest
          </Button>
        </div>
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            const text = new FormData(event.currentTarget).get("offset") as string;
            if (/^\d+$/.test(text)) go(Number(text));
          }}
        >
          <input class="input" name="offset" style={{ width: "130px" }} inputMode="numeric" aria-label="Go to offset" placeholder="Go to offset" />
        </form>
      </div>
      {found.error !== null ? (
        <ErrorPanel error={found.error} retry={found.error instanceof ApiError && found.error.code === "offset_expired" ? () => go(null) : found.refresh} />
      ) : answer === null ? (
        <Skeleton lines={10} />
      ) : (
        <Panel
          flush
          id="records"
          title={
            <span class="row">
              {rows.length === 0 ? "No records" : `Offsets ${count(first)} to ${count(answer.next_offset - 1)}`}
              {answer.stale && (
                <Badge tone="warn" title="Its query does not run: nothing new comes">
                  stale
                </Badge>
              )}
            </span>
          }
          hint={offset === null ? `The newest of ${count(answer.end_offset)}, newest first; looked at every ${EVERY_MS / 1_000} seconds` : `In the order of offsets; the end is at ${count(answer.end_offset)}`}
        >
          {rows.length === 0 ? (
            <Empty title={answer.end_offset === 0 ? "There is no record yet" : "Nothing is at this offset"}>
              <p>{answer.end_offset > 0 ? "The stream has ended before it, or its records were removed." : relation.origin === "source" ? "Append some, or post them over HTTP." : "Records appear when their query emits them."}</p>
            </Empty>
          ) : (
            <RowGrid label={`Records of ${relation.name}`} columns={columns} rows={rows} onChoose={(row) => setChosen(records.find((each) => String(each["$offset"]) === row.id) ?? null)} />
          )}
        </Panel>
      )}
      {chosen !== null && (
        <Dialog title={`Offset ${count(chosen["$offset"] as number)}`} onClose={() => setChosen(null)} footer={<Button onClick={() => setChosen(null)}>Close</Button>}>
          <Code language="json" label="Record" text={JSON.stringify(chosen, null, 2)} />
        </Dialog>
      )}
    </>
  );
}
