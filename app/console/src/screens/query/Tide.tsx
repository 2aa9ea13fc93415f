/**
 * The tide chart: for each operator with a grace, where event time stands, as it moves. One time counts for all of its tasks.
 *
 * From left to right event time. Right of the boundary (stream time less grace) is water: what waits there is not settled, drawn as a histogram.
 * Left of it is land: settled. What came there was late; late records that are kept are marks above the rows, all are counted beside them.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { LateRecord, Lateness, Status, WaitingSpan } from "~/api/types";
import { Panel } from "~/components/basics";
import { useGliding, useWidth } from "~/components/hooks";
import { count, moment, NONE, plural, span, words } from "~/format";
import { ticks } from "./ticks";

const LEFT = 118;
const RIGHT = 14;
const ROW = 46;
const LANE = 24;
const AXIS = 26;
/** With the policy `join` a late record is joined at once: nothing is lost. */
const JOINED = "late_joined";
const LOST = new Set(["late_dropped", "late_diverted", "window_closed", "window_out_of_range", "join_window_closed", "table_history_expired"]);
const MARKS = 300;
const BARS = 120;

/** A place to be marked: the time that an explanation is about, and the time for which it waits. */
export interface Mark {
  operator: string | null;
  atMs: number;
  untilMs: number | null;
}

interface Group {
  operator: string;
  graceMs: number;
  /** The time before the operator; null: it has read no record yet. */
  clockMs: number | null;
  /** Records that wait in all of its tasks. */
  buffered: number;
  waiting: WaitingSpan[];
  /** Late records that are not in the result. */
  lostCount: number;
  joinedCount: number;
}

export function Tide({ name, status, lateness, mark }: { name: string; status: Status; lateness: Lateness | null; mark?: Mark }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const groups = useMemo(() => (lateness === null ? null : groupsOf(status, lateness)), [status, lateness]);
  const late = useLive((signal) => api.get("/v1/queries/{name}/late-records", { path: { name }, query: { limit: MARKS }, signal }), 10_000, [name]);
  const isDrawn = groups !== null && groups.some((group) => group.clockMs !== null);
  return (
    <Panel
      id="tide"
      title="Tide"
      hint="Right of the boundary time is not settled: records wait. Left of it what comes is late."
      actions={<Legend />}
    >
      <div ref={place} class="tide">
        {groups === null ? (
          <p class="muted">Reading the graces of its operators …</p>
        ) : isDrawn ? (
          <>
            <Chart groups={groups} marks={late.data?.items ?? []} width={width} name={name} mark={mark} />
            <Next groups={groups} />
            <AsTable groups={groups} />
          </>
        ) : (
          <p class="muted">{groups.length === 0 ? "Nothing in this query has a grace: each record is answered when it comes." : "No operator with a grace has read a record yet."}</p>
        )}
      </div>
    </Panel>
  );
}

function groupsOf(status: Status, lateness: Lateness): Group[] {
  const found: Group[] = [];
  for (const setting of lateness.settings) {
    if (setting.operator === null || setting.relation !== null || found.some((group) => group.operator === setting.operator)) continue;
    found.push({
      operator: setting.operator,
      graceMs: setting.current_ms ?? 0,
      clockMs: status.clocks[setting.operator] ?? null,
      buffered: status.buffered[setting.operator] ?? 0,
      waiting: (status.tasks ?? []).filter((task) => task.operator === setting.operator).flatMap((task) => task.waiting),
      lostCount: counted(status, setting.operator, (reason) => LOST.has(reason)),
      joinedCount: counted(status, setting.operator, (reason) => reason === JOINED),
    });
  }
  return found;
}

function counted(status: Status, operator: string, fits: (reason: string) => boolean): number {
  return status.counters.filter((counter) => counter.input === operator && fits(counter.reason)).reduce((sum, counter) => sum + counter.count, 0);
}

function joinedText({ lostCount, joinedCount }: Group): string {
  if (joinedCount === 0) return lostCount > 0 ? "" : "none late";
  return `${lostCount > 0 ? ", " : ""}${count(joinedCount)} joined late`;
}

/** Everything that waits, clocks and boundaries, and a little more on both sides. */
function bounds(groups: readonly Group[], mark: Mark | undefined): [number, number] {
  const times: number[] = [];
  for (const group of groups) {
    if (group.clockMs !== null) times.push(group.clockMs, group.clockMs - group.graceMs * 1.25);
    for (const one of group.waiting) times.push(one.from_ms, one.to_ms);
  }
  if (mark !== undefined) times.push(mark.atMs, ...(mark.untilMs === null ? [] : [mark.untilMs]));
  const low = Math.min(...times);
  const high = Math.max(...times);
  const margin = Math.max((high - low) * 0.06, 1_000);
  return [low - margin, high + margin];
}

function Chart({ groups, marks, width, name, mark }: { groups: readonly Group[]; marks: readonly LateRecord[]; width: number; name: string; mark?: Mark }) {
  const [low, high] = bounds(groups, mark);
  const clocks = groups.map((group) => group.clockMs ?? low);
  const glided = useGliding([low, high, ...clocks]);
  const [from, to] = [glided[0]!, glided[1]!];
  const [pointed, setPointed] = useState<number | null>(null);
  const end = Math.max(width - RIGHT, LEFT + 40);
  const x = (at: number): number => LEFT + ((end - LEFT) * (at - from)) / (to - from);
  const inside = (at: number): number => Math.min(Math.max(x(at), LEFT), end);
  let top = 4;
  const parts = [];
  for (const [number, group] of groups.entries()) {
    const own = marks.filter((record) => record.input === group.operator && record.event_time_ms >= from && record.event_time_ms <= to);
    const lane = top;
    parts.push(
      <g key={group.operator}>
        <text x="0" y={lane + 15} class="operator">{group.operator}</text>
        <text x={end} y={lane + 15} text-anchor="end" class="faint">
          {group.lostCount > 0 && <tspan class="late-text">{count(group.lostCount)} late</tspan>}
          {joinedText(group)} · grace {span(group.graceMs)}
        </text>
        {own.map((record) => (
          <line key={record.id} x1={x(record.event_time_ms)} x2={x(record.event_time_ms)} y1={lane + 8} y2={lane + 21} class="late-mark">
            <title>{`late: ${moment(record.event_time_ms)}, ${words(record.reason)}`}</title>
          </line>
        ))}
      </g>,
    );
    top += LANE;
    parts.push(<Row key={`row ${group.operator}`} group={group} clock={glided[2 + number]!} top={top} x={inside} from={from} to={to} end={end} mark={mark} />);
    top += ROW + 6;
  }
  const height = top + AXIS;
  const steps = ticks(from, to, Math.max(2, Math.floor((end - LEFT) / 110)));
  const waiting = groups.reduce((sum, group) => sum + group.buffered, 0);
  return (
    <svg
      width={width}
      height={height}
      role="img"
      aria-label={`Where event time stands in ${plural(groups.length, "operator")} of ${name}: ${plural(waiting, "record")} wait. The table below has the numbers.`}
      onPointerMove={(event) => {
        const at = event.offsetX;
        setPointed(at < LEFT || at > end ? null : at);
      }}
      onPointerLeave={() => setPointed(null)}
    >
      {steps.map((step) => (
        <g key={step.ms}>
          <line x1={x(step.ms)} x2={x(step.ms)} y1={LANE} y2={top} class="grid" />
          <text x={x(step.ms)} y={top + 16} text-anchor="middle" class="faint">{step.text}</text>
        </g>
      ))}
      {parts}
      {mark !== undefined && (
        <g class="asked">
          <line x1={inside(mark.atMs)} x2={inside(mark.atMs)} y1="4" y2={top} />
          <text x={inside(mark.atMs) + 5} y="14">asked about</text>
        </g>
      )}
      {pointed !== null && (
        <g class="pointer">
          <line x1={pointed} x2={pointed} y1={LANE} y2={top} />
          <text x={Math.min(pointed + 6, end - 120)} y={top + 16}>{moment(Math.round(from + ((pointed - LEFT) / (end - LEFT)) * (to - from)))}</text>
        </g>
      )}
    </svg>
  );
}

interface Bar {
  fromMs: number;
  toMs: number;
  least: number;
  most: number;
}

/** How many wait at which times, over all tasks: each span of a task evenly over its time, in bars of one width. */
function histogram(spans: readonly WaitingSpan[], from: number, to: number): Bar[] {
  const width = (to - from) / BARS;
  const bars = new Map<number, Bar>();
  for (const one of spans) {
    const [first, last] = [one.from_ms, one.to_ms].map((at) => Math.min(Math.max(Math.floor((at - from) / width), 0), BARS - 1)) as [number, number];
    for (let number = first; number <= last; number += 1) {
      const bar = bars.get(number) ?? { fromMs: from + number * width, toMs: from + (number + 1) * width, least: 0, most: 0 };
      bar.least += one.at_least / (last - first + 1);
      bar.most += one.at_most / (last - first + 1);
      bars.set(number, bar);
    }
  }
  const [begin, end] = [Math.min(...spans.map((one) => one.from_ms)), Math.max(...spans.map((one) => one.to_ms))];
  return [...bars.values()].map((bar) => ({ ...bar, fromMs: Math.max(bar.fromMs, begin), toMs: Math.min(bar.toMs, end) })).sort((a, b) => a.fromMs - b.fromMs);
}

function Row({ group, clock, top, x, from, to, end, mark }: { group: Group; clock: number; top: number; x: (at: number) => number; from: number; to: number; end: number; mark?: Mark }) {
  const height = ROW - 8;
  const floor = top + height;
  const labels = (
    <>
      <text x="10" y={top + 23} class="faint">{group.clockMs === null ? "no record yet" : `${count(group.buffered)} waiting`}</text>
    </>
  );
  if (group.clockMs === null)
    return (
      <g>
        {labels}
        <rect x={LEFT} y={top} width={end - LEFT} height={height} class="nothing" rx="4" />
      </g>
    );
  const boundary = clock - group.graceMs;
  const bars = histogram(group.waiting, from, to);
  const most = Math.max(...bars.map((bar) => bar.most), 0) || 1;
  const isMarked = mark !== undefined && (mark.operator === null || mark.operator === group.operator);
  return (
    <g>
      {labels}
      <title>{`stream time ${moment(group.clockMs)}, boundary ${moment(group.clockMs - group.graceMs)}, ${count(group.buffered)} waiting`}</title>
      <rect x={LEFT} y={top} width={end - LEFT} height={height} class="sky" rx="4" />
      <rect x={LEFT} y={top} width={Math.max(0, x(boundary) - LEFT)} height={height} class="land" rx="4" />
      <rect x={x(boundary)} y={top} width={Math.max(0, x(clock) - x(boundary))} height={height} class="water" />
      {bars.map((bar) => {
        const size = Math.max((bar.most / most) * (height - 8), 3);
        const [least, greatest] = [Math.floor(bar.least), Math.ceil(bar.most)];
        const number = least === greatest ? count(greatest) : `${count(least)} to ${count(greatest)}`;
        return (
          <rect key={bar.fromMs} x={x(bar.fromMs)} y={floor - size} width={Math.max(x(bar.toMs) - x(bar.fromMs), 2)} height={size} class="waits" rx="1">
            <title>{`${number} wait, ${moment(Math.round(bar.fromMs))} to ${moment(Math.round(bar.toMs))}`}</title>
          </rect>
        );
      })}
      <line x1={x(boundary)} x2={x(boundary)} y1={top} y2={floor} class="boundary" />
      <line x1={x(clock)} x2={x(clock)} y1={top - 2} y2={floor + 2} class="clock" />
      {isMarked && mark.untilMs !== null && (
        <g class="until">
          <line x1={x(mark.atMs)} x2={x(mark.untilMs)} y1={top + height / 2} y2={top + height / 2} />
          <circle cx={x(mark.atMs)} cy={top + height / 2} r="4" />
        </g>
      )}
    </g>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Colours">
      {[
        ["land", "settled"],
        ["waits", "waiting"],
        ["boundary", "boundary"],
        ["clock", "stream time"],
        ["late-mark", "late"],
      ].map(([tone, text]) => (
        <li key={tone}>
          <i class={tone} />
          {text}
        </li>
      ))}
    </ul>
  );
}

/** When the first of what waits goes on: with which record, for stream time moves with records. */
function Next({ groups }: { groups: readonly Group[] }) {
  const found = groups.flatMap((group) => {
    if (group.clockMs === null || group.waiting.length === 0) return [];
    return [{ group, clockMs: group.clockMs, atMs: Math.min(...group.waiting.map((one) => one.from_ms)) + group.graceMs }];
  });
  return (
    <>
      {found.map(({ group, clockMs, atMs }) => {
        const left = atMs - clockMs;
        return (
          <p key={group.operator} class="small">
            <strong>{group.operator}</strong>: {count(group.buffered)} {group.buffered === 1 ? "waits for its grace" : "wait for their grace"}.{" "}
            {left > 0 ? `The next goes on when time here has reached ${moment(atMs)}, whatever record brings it there: ${span(left)} of event time from where it is.` : "The next goes on with the next record."}
          </p>
        );
      })}
    </>
  );
}

/** The same as numbers: for screen readers, and for whoever wants them exact. */
function AsTable({ groups }: { groups: readonly Group[] }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), []);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      <div class="scroll-x" tabIndex={0}>
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Operator</th>
              <th scope="col">Boundary</th>
              <th scope="col">Stream time</th>
              <th scope="col" class="num">Waiting</th>
            </tr>
          </thead>
          <tbody>
            {groups.map((group) => (
              <tr key={group.operator}>
                <td>{group.operator}</td>
                <td>{group.clockMs === null ? NONE : moment(group.clockMs - group.graceMs)}</td>
                <td>{moment(group.clockMs)}</td>
                <td class="num">{count(group.buffered)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
