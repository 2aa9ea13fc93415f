/** A table's rows: filtered, as of now or of an event time, followed as they change. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ApiError } from "~/api/client";
import { useEvents } from "~/api/live";
import type { Relation, RowsAnswer } from "~/api/types";
import { Badge, Button, Empty, Note, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Segments } from "~/components/Tabs";
import { count, moment, plural } from "~/format";
import { usePages, type Page } from "~/records/pages";
import { RowGrid, type GridColumn, type GridRow } from "~/records/RowGrid";
import { place, setQuery } from "~/router";
import { parametersOf, readConditions, written, type Condition } from "./conditions";
import { Conditions } from "./Conditions";
import { RowDialog } from "./RowDialog";
import { TimeSlider } from "./TimeSlider";
import type { Row } from "./versions";

const PAGE = 200;
/** Rows are read again at most so often while they change. */
const FOLLOWED_EVERY_MS = 1_000;

type State = "default" | "final" | "open" | "any";
type RowsPage = Page<Row> & { answer: RowsAnswer };

export function Rows({ relation, isWindowed }: { relation: Relation; isWindowed: boolean }) {
  const query = place.value.query;
  const conditions = useMemo(() => readConditions(query.get("where")), [query.get("where")]);
  const at = query.get("as_of");
  const asOf = at === null || Number.isNaN(Number(at)) ? null : Number(at);
  const state = (query.get("state") ?? "default") as State;
  const [isFollowed, setFollowed] = useState(true);
  const [chosen, setChosen] = useState<Row | null>(null);
  const fresh = useRef(new Set<string>());

  const pages = usePages<Row, RowsPage>(
    async (cursor, signal) => {
      const answer = await api.get("/v1/tables/{name}/rows", {
        path: { name: relation.name },
        query: { ...parametersOf(conditions, relation.key), as_of_ms: asOf, state: state === "default" ? null : state, limit: PAGE, cursor },
        signal,
      });
      return { items: answer.rows, next: answer.next, answer };
    },
    [relation.name, query.get("where"), asOf, state],
  );

  const idOf = (row: Row): string => JSON.stringify(relation.key.map((column) => row[column]));
  const isLive = isFollowed && asOf === null && pages.head !== null;
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const following = useEvents(
    isLive ? "/v1/tables/{name}/changes" : null,
    { path: { name: relation.name }, query: { from: "latest" } },
    (event) => {
      if (event.event !== "change") return;
      const change = JSON.parse(event.data) as { key: Row };
      fresh.current.add(JSON.stringify(relation.key.map((column) => change.key[column])));
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        pages.refresh();
      }, FOLLOWED_EVERY_MS);
    },
    [relation.name],
  );
  useEffect(() => () => clearTimeout(timer.current), []);

  const answer = pages.head?.answer ?? null;
  const extra = answer !== null && (answer.rows[0]?.["$state"] !== undefined || pages.items[0]?.["$state"] !== undefined);
  const columns: GridColumn[] = [
    ...(extra ? [{ name: "state" }] : []),
    ...Object.entries(relation.columns).map(([name, type]) => ({ name, type, isKey: relation.key.includes(name) })),
  ];
  const rows: GridRow[] = pages.items.map((row) => {
    const id = idOf(row);
    return {
      id,
      values: [...(extra ? [row["$state"]] : []), ...Object.keys(relation.columns).map((name) => row[name] ?? null)],
      tone: fresh.current.has(id) ? ("new" as const) : undefined,
    };
  });

  if (pages.error instanceof ApiError && pages.error.code === "table_not_materialised") {
    return (
      <Panel flush>
        <Empty title="The rows of this source are not stored">
          <p>Queries read its changes, but its rows cannot be read. Register it with “keep rows for reading” to read them.</p>
          <p class="small muted">{pages.error.problem.cure.replaceAll("`", "")}</p>
        </Empty>
      </Panel>
    );
  }
  const setConditions = (next: Condition[]): void => setQuery({ where: written(next) });
  return (
    <>
      <div class="row wrap">
        <Conditions relation={relation} conditions={conditions} onChange={setConditions} />
        <span class="grow" />
        {isWindowed && asOf === null && (
          <Segments<State>
            label="Windows"
            value={state}
            options={[
              ["default", "Default"],
              ["final", "Final"],
              ["open", "Open"],
              ["any", "All"],
            ]}
            onChange={(next) => setQuery({ state: next === "default" ? null : next })}
          />
        )}
        {asOf === null && (
          <Button small icon={isFollowed ? "pause" : "play"} aria-pressed={isFollowed} onClick={() => setFollowed(!isFollowed)}>
            {isFollowed ? "Following" : "Follow"}
          </Button>
        )}
      </div>
      {answer !== null && <TimeSlider answer={answer} asOf={asOf} onChange={(ms) => setQuery({ as_of: ms === null ? null : String(ms) })} />}
      {following.error !== null && isLive && (
        <Note tone="warn">
          <strong>Changes cannot be followed now</strong>
          <span>{following.error.message}</span>
        </Note>
      )}
      {pages.error !== null ? (
        <ErrorPanel error={pages.error} retry={pages.refresh} />
      ) : answer === null ? (
        <Skeleton lines={10} />
      ) : (
        <Panel
          flush
          id="rows"
          title={
            <span class="row">
              {answer.next === null ? plural(rows.length, "row") : `First ${plural(rows.length, "row")}`}
              {answer.stale && (
                <Badge tone="warn" title="Its query does not run: rows are as of its last commit">
                  stale
                </Badge>
              )}
            </span>
          }
          hint={hintOf(answer)}
        >
          {rows.length === 0 ? (
            <Empty title={conditions.length > 0 ? "No row matches" : asOf !== null ? "There was no row at this time" : "There is no row yet"}>
              <p>{conditions.length > 0 ? "Take a condition away, or look at another time." : "Rows appear when their query commits them, at the latest when their time has settled."}</p>
            </Empty>
          ) : (
            <RowGrid label={`Rows of ${relation.name}`} columns={columns} rows={rows} onEnd={pages.more} chosen={chosen === null ? null : idOf(chosen)} onChoose={(row) => setChosen(pages.items.find((each) => idOf(each) === row.id) ?? null)} />
          )}
        </Panel>
      )}
      {chosen !== null && answer !== null && <RowDialog relation={relation} row={chosen} answer={answer} onClose={() => setChosen(null)} />}
    </>
  );
}

function hintOf(answer: RowsAnswer): string {
  const parts = [
    answer.as_of_ms !== null ? `as of ${moment(answer.as_of_ms)} in event time` : null,
    answer.stream_time_ms !== null ? `stream time ${moment(answer.stream_time_ms)}` : null,
    answer.committed_at !== null ? `committed ${moment(answer.committed_at)}` : null,
  ];
  const read = Object.values(answer.position).reduce((sum, feed) => sum + Object.values(feed).reduce((all, offset) => all + offset, 0), 0);
  return [...parts.filter((part) => part !== null), read > 0 ? `${count(read)} records read` : null].filter((part) => part !== null).join(" · ");
}
