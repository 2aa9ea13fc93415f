/** What the query does at this moment: its numbers, the tide chart, what limits it, its delivery. */
import type { Lateness, Status } from "~/api/types";
import { Badge, Empty, Facts, Note, Panel, Tile } from "~/components/basics";
import { Reason } from "~/components/Reason";
import { Series } from "~/components/Series";
import { ago, count, moment, NONE, percent, plural, rate, span, until, words } from "~/format";
import { historyOf, overview, troubleOfDelivery, type Sample } from "~/overview";
import { Tide } from "./Tide";

const LIMITS: Record<string, string> = {
  input: "It keeps up: it waits for records.",
  reading: "Reading and sharing out its records takes the most time.",
  tasks: "The work of its tasks takes the most time. More tasks and cores help, unless one task has most of the records.",
  commit: "Writing its results to the database takes the most time.",
  other_queries: "Other queries of its slot take the most time. More drivers help.",
  upstream: "It leaves records unread until the query that writes another of its inputs has come as far in event time.",
  unmeasured: "It has committed nothing yet, or has worked at one batch for more than ten seconds.",
  paused: "It is paused.",
  not_running: "It does not run.",
};

function limitOf(status: Status): string {
  return LIMITS[status.limited_by] ?? words(status.limited_by);
}

/** What became of late records: with the policy `join` all of them are in the result. */
function becameOf(status: Status): string {
  const joined = status.counters.filter((counter) => counter.reason === "late_joined").reduce((sum, counter) => sum + counter.count, 0);
  return joined > 0 ? `since it began; ${count(joined)} joined` : "since it began";
}

export function lagOf(status: Status): number | null {
  const known = status.progress.flatMap((feed) => feed.partitions).flatMap((partition) => (partition.lag === null ? [] : [partition.lag]));
  return known.length === 0 ? null : known.reduce((sum, lag) => sum + lag, 0);
}

export function waitingOf(status: Status): number {
  return Object.values(status.buffered).reduce((sum, rows) => sum + rows, 0);
}

/** Which partition holds stream time back (`clock: slowest`), and since when. */
function Slowest({ of: slowest }: { of: NonNullable<Status["slowest_partition"]> }) {
  const source = slowest.relations.length === 0 ? slowest.feed : slowest.relations.join(", ");
  return (
    <p class="small">
      Partition {slowest.partition} of {source} holds stream time back: it is {span(slowest.behind_ms)} behind the others, and the slowest one
      since {moment(Date.parse(slowest.since)).slice(11)} UTC ({ago(slowest.since)}).
    </p>
  );
}

export function Now({ name, status, lateness }: { name: string; status: Status; lateness: Lateness | null }) {
  overview.value; // the history of numbers grows with it
  const history = historyOf(name);
  const last = history.at(-1);
  const waiting = waitingOf(status);
  const glance = overview.value?.queries.find((query) => query.name === name);
  const isInTrouble = glance !== undefined && status.delivery !== null && troubleOfDelivery(glance) !== null;
  return (
    <>
      <div class="tiles" role="group" aria-label="Numbers of this query">
        <Tile name="Stream time" value={status.stream_time_ms === null ? NONE : moment(status.stream_time_ms).slice(11)} more={status.stream_time_ms === null ? "no record yet" : `${moment(status.stream_time_ms).slice(0, 10)} UTC`} />
        <Tile name="Read" value={rate(last?.rate)} more={`${count(status.read_rows)} in all`} />
        <Tile name="Behind" value={count(lagOf(status))} more={lagOf(status) === 0 ? "everything is read" : "records not read yet"} />
        <Tile name="Waiting" value={count(waiting)} more={waiting === 0 ? "nothing" : "not settled yet"} />
        <Tile name="Late" value={count(glance?.late)} more={becameOf(status)} />
        <Tile name="Batch" value={status.batch_id === null ? NONE : span(glance?.batch_ms)} more={status.batch_id === null ? "none yet" : `number ${count(status.batch_id)}, ${ago(status.committed_at)}`} />
      </div>
      {status.slowest_partition !== null && <Slowest of={status.slowest_partition} />}
      <Behind status={status} history={history} />
      {isInTrouble && <DeliveryPanel status={status} />}
      <Tide name={name} status={status} lateness={lateness} />
      <div class="halves">
        <Panel id="rates" title="Records a second">
          {history.length < 3 ? (
            <p class="muted">Curves begin when the page is opened.</p>
          ) : (
            <Series
              label="Records read and written a second"
              times={history.map((sample) => sample.at)}
              curves={[
                { label: "Read", colour: "--accent", values: history.map((sample) => sample.rate), filled: true },
                { label: "Written", colour: "--land", values: history.map((sample) => sample.emitted) },
              ]}
            />
          )}
        </Panel>
        <Panel id="backlog" title="Behind and waiting">
          {history.length < 3 ? (
            <p class="muted">Curves begin when the page is opened.</p>
          ) : (
            <Series
              label="Records behind and waiting"
              times={history.map((sample) => sample.at)}
              curves={[
                { label: "Behind", colour: "--clock", values: history.map((sample) => sample.lag) },
                { label: "Waiting", colour: "--water", values: history.map((sample) => sample.waiting), filled: true },
              ]}
            />
          )}
        </Panel>
      </div>
      <div class="halves">
        <Counted status={status} />
        <Work status={status} />
      </div>
      <Inputs status={status} />
      {status.delivery !== null && !isInTrouble && <DeliveryPanel status={status} />}
    </>
  );
}

/** Over so many of the newest samples the lag's way is judged. */
const JUDGED = 6;

/** What a query that is behind needs: whether it catches up, when, and else what limits it. */
function Behind({ status, history }: { status: Status; history: readonly Sample[] }) {
  const lag = lagOf(status);
  const isAtRest = status.state === "paused" || status.state === "stopped";
  if (lag === null || lag === 0 || (!isAtRest && status.state !== "running")) return null;
  const records = plural(lag, "record");
  const are = lag === 1 ? "is" : "are";
  if (isAtRest)
    return (
      <Note tone="warn">
        <span>
          It is {status.state}; {records} {are} not read yet. Resume it, and it goes on where it was: nothing is lost as long as its inputs keep their records.
        </span>
      </Note>
    );
  const known = history.slice(-JUDGED).filter((sample) => sample.lag !== null);
  const [first, last] = [known[0], known.at(-1)];
  const seconds = first === undefined || last === undefined ? 0 : (last.at - first.at) / 1_000;
  if (seconds < 3) return null; // what has just come is read in a moment
  const perSecond = (first!.lag! - last!.lag!) / seconds;
  return (
    <Note tone="warn">
      <span>
        {records} {are} not read yet. {perSecond > 0 ? `It catches up, by ${rate(perSecond)}: in about ${span(Math.max(1_000, Math.round(lag / perSecond) * 1_000))}.` : perSecond < 0 ? `It falls behind by ${rate(-perSecond)}: more comes than it reads.` : "It does not catch up now."}
      </span>
      <span>
        <span class="muted">What limits it:</span> {limitOf(status)}
      </span>
    </Note>
  );
}

function Counted({ status }: { status: Status }) {
  return (
    <Panel id="counted" title="Counted" hint="At its inputs and operators, since it began with this state">
      {status.counters.length === 0 ? (
        <p class="muted">Nothing was late, dropped or refused.</p>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Where</th>
              <th scope="col">What</th>
              <th scope="col" class="num">How often</th>
            </tr>
          </thead>
          <tbody>
            {status.counters.map((counter) => (
              <tr key={counter.input + counter.reason}>
                <td>{counter.input}</td>
                <td>{words(counter.reason)}</td>
                <td class="num">{count(counter.count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

const PARTS = ["reading", "tasks", "commit", "other_queries"] as const;

function Work({ status }: { status: Status }) {
  const { shares, execution } = status;
  const busy = PARTS.reduce((sum, part) => sum + shares[part], 0);
  return (
    <Panel id="work" title="What its time goes into" hint="Over the last ten seconds">
      <div class="stack">
        <div class="shares" role="img" aria-label={`${PARTS.map((part) => `${part} ${percent(shares[part], 0)}`).join(", ")}, waiting for records ${percent(Math.max(0, 1 - busy), 0)}`}>
          {PARTS.map((part) => (
            <i key={part} class={part} style={{ width: `${Math.min(shares[part], 1) * 100}%` }} title={`${part}: ${percent(shares[part], 0)}`} />
          ))}
        </div>
        <p>{limitOf(status)}</p>
        <Facts
          items={[
            ...PARTS.map((part): [string, string] => [part, percent(shares[part])]),
            ...status.functions.map((each): [string, string] => [`function ${each.name}`, percent(each.share)]),
            ["busiest task", shares.busiest_task === null ? NONE : `${percent(shares.busiest_task, 0)} of the tasks' work`],
            ["slot", execution === null ? NONE : `${execution.mode}${execution.is_waiting ? ", waits for its own" : ""}${execution.cpu_share === null ? "" : `, ${percent(execution.cpu_share)} of a core`}`],
            ["launch", `${status.epoch}, definition ${status.observed_generation} of ${status.generation}`],
          ]}
        />
      </div>
    </Panel>
  );
}

function Inputs({ status }: { status: Status }) {
  return (
    <Panel id="inputs" title="Inputs" hint="How far each partition has been read">
      {status.progress.length === 0 ? (
        <Empty title="Nothing is read yet" />
      ) : (
        <div class="scroll-x" tabIndex={0}>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Feed</th>
                <th scope="col"><abbr title="Partition">Part.</abbr></th>
                <th scope="col" class="num">Next</th>
                <th scope="col" class="num">End</th>
                <th scope="col" class="num">Behind</th>
              </tr>
            </thead>
            <tbody>
              {status.progress.flatMap((feed) =>
                feed.partitions.map((partition) => (
                  <tr key={`${feed.feed} ${partition.partition}`}>
                    <td class="name">
                      <code>{feed.feed}</code>
                    </td>
                    <td>{partition.partition}</td>
                    <td class="num">{count(partition.next_offset)}</td>
                    <td class="num">{count(partition.end_offset)}</td>
                    <td class="num">{partition.lag ? <strong>{count(partition.lag)}</strong> : count(partition.lag)}</td>
                  </tr>
                )),
              )}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function DeliveryPanel({ status }: { status: Status }) {
  const delivery = status.delivery!;
  return (
    <Panel id="delivery" title="Delivery" hint={`Its results go to ${delivery.type} as well`} actions={<Badge tone={delivery.state === "delivering" ? "good" : delivery.state === "waiting" ? "warn" : "bad"} dot>{delivery.state}</Badge>}>
      <div class="stack">
        {delivery.reason !== null && (
          <Note tone={delivery.state === "stopped" ? "bad" : "warn"}>
            <Reason reason={delivery.reason}>
              {delivery.next_attempt_at !== null && <span class="muted"> · tried again in {until(delivery.next_attempt_at)}</span>}
            </Reason>
          </Note>
        )}
        <Facts
          items={[
            ["delivered", count(delivery.delivered_rows)],
            ["not delivered yet", `${count(delivery.lag_rows)}${delivery.lag_ms === null ? "" : `, ${span(delivery.lag_ms)} of event time`}`],
            ["last", ago(delivery.delivered_at)],
            ["failed attempts", count(delivery.failures)],
          ]}
        />
      </div>
    </Panel>
  );
}
