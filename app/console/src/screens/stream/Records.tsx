/**
 * A stream's records: the newest of all partitions, or those of one by offset, from the newest back to the oldest that is kept.
 *
 * Offsets count within a partition, so that going back and forth needs one.
 */
import { useMemo, useState } from "preact/hooks";
import { api, ApiError } from "~/api/client";
import { useLive } from "~/api/live";
import type { RecordsAnswer, Relation } from "~/api/types";
import { Badge, Button, Empty, Panel, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Code } from "~/components/Code";
import { count, moment, plural } from "~/format";
import { place, setQuery } from "~/router";
import { RowGrid, type GridColumn } from "~/records/RowGrid";

const PAGE = 200;
const EVERY_MS = 5_000;

export function Records({ relation }: { relation: Relation }) {
  const query = place.value.query;
  const parts = relation.origin === "source" ? (relation.partitions ?? []) : [];
  const part = query.get("part");
  const asked = query.get("offset");
  const named = query.get("partition");
  // What a query has appended is read over all of its partitions.
  const isWhole = parts.length > 1 && named === null && asked === null && part === null;
  if (isWhole) return <Whole relation={relation} />;
  return <OnePartition key={`${named} ${part}`} relation={relation} part={part} asked={asked} partition={parts.length === 0 || part !== null ? null : Number(named ?? parts[0]!.partition)} />;
}

interface OneProps {
  relation: Relation;
  /** null: a derived stream as a whole. */
  partition: number | null;
  part: string | null;
  asked: string | null;
}

function OnePartition({ relation, partition, part, asked }: OneProps) {
  const parts = relation.origin === "source" ? (relation.partitions ?? []) : [];
  const offset = asked === null || !/^\d+$/.test(asked) ? null : Number(asked);
  const [chosen, setChosen] = useState<Record<string, unknown> | null>(null);

  const found = useLive<RecordsAnswer>(
    async (signal) => {
      if (offset === null) return newest(relation.name, partition, signal, part);
      return api.get("/v1/streams/{name}/records", { path: { name: relation.name }, query: { partition, part, offset, limit: PAGE }, signal });
    },
    offset === null ? EVERY_MS : null,
    [relation.name, partition, part, offset],
  );

  const answer = found.data;
  const columns = useMemo<GridColumn[]>(() => [{ name: "offset", type: "bigint" }, ...columnsOf(relation)], [relation]);
  const records = answer === null ? [] : offset === null ? [...answer.records].reverse() : answer.records;
  const rows = records.map((record) => ({ id: String(record["$offset"]), values: [record["$offset"], ...valuesOf(relation, record)], tone: toneOf(record) }));
  const first = answer?.records[0]?.["$offset"] as number | undefined;
  const oldest = parts.find((each) => each.partition === partition)?.start_offset ?? 0;
  const isAtEnd = answer !== null && answer.next_offset >= answer.end_offset;
  const go = (to: number | null): void => setQuery({ offset: to === null ? null : String(Math.max(0, to)) });

  return (
    <>
      <div class="row wrap">
        <Choices relation={relation} partition={partition} part={part} />
        <div class="row" role="group" aria-label="Where in the stream">
          <Button small disabled={first === undefined || first <= oldest} onClick={() => go(oldest)}>
            Oldest
          </Button>
          <Button small disabled={first === undefined || first <= oldest} onClick={() => go(Math.max(oldest, (first ?? PAGE) - PAGE))}>
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
          hint={offset === null ? `The newest of ${count(answer.end_offset)}, newest first; updated every ${EVERY_MS / 1_000} seconds` : `In the order of offsets; the end is at ${count(answer.end_offset)}`}
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
      {chosen !== null && <OneRecord title={`Offset ${count(chosen["$offset"] as number)}`} record={chosen} onClose={() => setChosen(null)} />}
    </>
  );
}

/** So many partitions are asked at a time. */
const MOST_PARTITIONS = 16;

interface Placed {
  partition: number;
  /** How many records of its partition are newer. */
  newer: number;
  record: Record<string, unknown>;
}

function Whole({ relation }: { relation: Relation }) {
  const [chosen, setChosen] = useState<Placed | null>(null);
  const found = useLive(
    async (signal) => {
      // An empty one may have got its first record since the stream was looked at, so it is asked as well.
      const parts = [...relation.partitions!].sort((one, other) => held(other) - held(one)).slice(0, MOST_PARTITIONS);
      const pages = await Promise.all(parts.map((each) => newest(relation.name, each.partition, signal)));
      return { pages, records: pages.flatMap(placed).sort(byEventTime).slice(0, PAGE) };
    },
    EVERY_MS,
    [relation.name],
  );
  const columns = useMemo<GridColumn[]>(() => [{ name: "partition", type: "bigint" }, { name: "offset", type: "bigint" }, ...columnsOf(relation)], [relation]);
  const records = found.data?.records ?? [];
  const rows = records.map((each) => ({ id: idOf(each), values: [each.partition, each.record["$offset"], ...valuesOf(relation, each.record)], tone: toneOf(each.record) }));
  const total = relation.partitions!.reduce((sum, each) => sum + Math.max(held(each), heldNow(found.data?.pages, each)), 0);
  const left = relation.partitions!.length - MOST_PARTITIONS;
  return (
    <>
      <div class="row wrap">
        <Choices relation={relation} partition={null} part={null} />
      </div>
      {found.error !== null ? (
        <ErrorPanel error={found.error} retry={found.refresh} />
      ) : found.data === null ? (
        <Skeleton lines={10} />
      ) : (
        <Panel
          flush
          id="records"
          title={rows.length === 0 ? "No records" : rows.length < total ? `The newest ${count(rows.length)} of ${count(total)} records` : plural(rows.length, "record")}
          hint={`By event time, newest first, of ${left > 0 ? `the ${MOST_PARTITIONS} fullest of ` : ""}${plural(relation.partitions!.length, "partition")}; updated every ${EVERY_MS / 1_000} seconds. Choose a partition to go back in it.`}
        >
          {rows.length === 0 ? (
            <Empty title="There is no record yet">
              <p>Append some, or post them over HTTP.</p>
            </Empty>
          ) : (
            <RowGrid label={`Records of ${relation.name}`} columns={columns} rows={rows} onChoose={(row) => setChosen(records.find((each) => idOf(each) === row.id) ?? null)} />
          )}
        </Panel>
      )}
      {chosen !== null && <OneRecord title={`Partition ${chosen.partition}, offset ${count(chosen.record["$offset"] as number)}`} record={chosen.record} onClose={() => setChosen(null)} />}
    </>
  );
}

type PartitionRange = NonNullable<Relation["partitions"]>[number];

function held(range: PartitionRange): number {
  return range.next_offset - range.start_offset;
}

/** The end of a partition moves on while the page is looked at. */
function heldNow(pages: readonly RecordsAnswer[] | undefined, range: PartitionRange): number {
  const page = pages?.find((each) => each.partition === range.partition);
  return page === undefined ? 0 : page.end_offset - range.start_offset;
}

/** The newest page of a partition. Its ends are not known before somebody asks for them; retention moves the first one. */
async function newest(name: string, partition: number | null, signal: AbortSignal, part: string | null = null): Promise<RecordsAnswer> {
  const ask = (offset: number | null, limit: number) => api.get("/v1/streams/{name}/records", { path: { name }, query: { partition, part, offset, limit }, signal });
  const first = await ask(null, 1);
  const oldest = (first.records[0]?.["$offset"] as number | undefined) ?? first.next_offset;
  return ask(Math.max(oldest, first.end_offset - PAGE), PAGE);
}

function placed(page: RecordsAnswer): Placed[] {
  return page.records.map((record) => ({ partition: page.partition!, newer: page.end_offset - (record["$offset"] as number), record }));
}

/** Of one event time the newest of each partition come first. */
function byEventTime(one: Placed, other: Placed): number {
  return (other.record["$event_time_ms"] as number) - (one.record["$event_time_ms"] as number) || one.newer - other.newer || one.partition - other.partition;
}

function idOf({ partition, record }: Placed): string {
  return `${partition}:${String(record["$offset"])}`;
}

function columnsOf(relation: Relation): GridColumn[] {
  return [{ name: "event time" }, ...Object.entries(relation.columns).map(([name, type]) => ({ name, type, isKey: relation.key.includes(name) }))];
}

function valuesOf(relation: Relation, record: Record<string, unknown>): unknown[] {
  return [moment(record["$event_time_ms"] as number), ...Object.keys(relation.columns).map((name) => record[name] ?? null)];
}

function toneOf(record: Record<string, unknown>): "gone" | undefined {
  return record["$op"] === "delete" ? "gone" : undefined;
}

/** Whose records are shown: of which partition, and of clients or of a query. */
function Choices({ relation, partition, part }: { relation: Relation; partition: number | null; part: string | null }) {
  const parts = relation.origin === "source" ? (relation.partitions ?? []) : [];
  return (
    <>
      {parts.length > 1 && part === null && (
        <label class="row">
          <span class="muted small">Partition</span>
          <select class="input" style={{ width: "auto" }} value={partition === null ? "all" : String(partition)} onChange={(event) => setQuery({ partition: event.currentTarget.value === "all" ? null : event.currentTarget.value, offset: null })}>
            <option value="all">All</option>
            {parts.map((each) => (
              <option key={each.partition} value={String(each.partition)}>
                {each.partition} ({count(held(each))})
              </option>
            ))}
          </select>
        </label>
      )}
      {relation.parts.length > 0 && (
        <label class="row">
          <span class="muted small">Written by</span>
          <select class="input" style={{ width: "auto" }} value={part ?? ""} onChange={(event) => setQuery({ part: event.currentTarget.value || null, partition: null, offset: null })}>
            <option value="">clients</option>
            {relation.parts.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

function OneRecord({ title, record, onClose }: { title: string; record: Record<string, unknown>; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose} footer={<Button onClick={onClose}>Close</Button>}>
      <Code language="json" label="Record" text={JSON.stringify(record, null, 2)} />
    </Dialog>
  );
}
