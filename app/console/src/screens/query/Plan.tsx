/** The plan as a picture: inputs, the operators of each stage with what they count and what waits in them, and the result. */
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { OneQuery, Status } from "~/api/types";
import { Panel, Skeleton } from "~/components/basics";
import { Diagram, shortened, type Arrow, type Box } from "~/components/Diagram";
import { ErrorPanel } from "~/components/ErrorPanel";
import { compact, span, words } from "~/format";
import { overview, rateOf, relationOf } from "~/overview";
import { pathOf } from "~/router";
import { screenFor } from "../registry";

export interface PlanOperator {
  operator: string;
  name?: string | null;
  /** By how much time behind it is less than time before it. */
  waits_ms?: number;
  [part: string]: unknown;
}

export interface PlanAnswer {
  inputs: { index: number; alias: string; part_of?: number | null; relation: { name: string; kind: "stream" | "table" } }[];
  stages: { index: number; running: number | null; operators: PlanOperator[] }[];
  output: { name: string; kind: "stream" | "table" };
}

export function Plan({ query, status }: { query: OneQuery; status: Status }) {
  const validation = useLive((signal) => api.post("/v1/validations", { body: query.definition, signal }), null, [query.name, query.version]);
  const plan = (validation.data?.plan ?? null) as PlanAnswer | null;
  return (
    <Panel id="plan" title="Plan" hint="What becomes of a record, and what each step counts">
      {validation.error !== null ? <ErrorPanel error={validation.error} retry={validation.refresh} /> : plan === null ? <Skeleton lines={3} /> : <Picture plan={plan} status={status} />}
    </Panel>
  );
}

const TITLES: Record<string, string> = {
  StreamTableJoin: "join with table",
  StreamStreamJoin: "join with stream",
  TableTableJoin: "join with table",
  ForeignKeySubscription: "find by foreign key",
  ForeignKeyLookup: "look up in table",
  ForeignKeyResult: "join result",
  RunningAggregation: "aggregate",
  TableRegrouping: "group again",
  TableAggregation: "aggregate",
  TumblingAggregation: "tumbling windows",
  HoppingAggregation: "hopping windows",
  SlidingAggregation: "sliding windows",
  SessionAggregation: "sessions",
  TimeLimitSuppression: "hold back",
  WallClockSuppression: "hold back",
  Filter: "filter",
  TableFilter: "filter",
  Projection: "select",
  Retiming: "set event time",
  Explosion: "explode",
};

function Picture({ plan, status }: { plan: PlanAnswer; status: Status }) {
  const boxes: Box[] = [];
  const arrows: Arrow[] = [];
  overview.value; // arrows move as the numbers do
  const isFlowing = (rateOf(status.name) ?? 0) > 0;
  const operators = new Set(plan.stages.flatMap((stage) => stage.operators.map((operator) => operator.name)));
  for (const input of plan.inputs) {
    if (input.part_of !== null && input.part_of !== undefined) continue;
    const { name, kind } = input.relation;
    const to = pathOf(`/${kind}s/:name`, { name });
    boxes.push(box(`input ${input.index}`, name, [[kind, relationOf(name)?.origin === "derived" ? "derived" : "source"].join(" · "), ...(operators.has(input.alias) ? [] : counted(status, input.alias))], "sunken", screenFor(to) === null ? null : to));
  }
  let before: string | null = null;
  for (const stage of plan.stages) {
    if (stage.running !== null) before = `input ${stage.running}`;
    for (const [index, operator] of stage.operators.entries()) {
      const id = `operator ${stage.index} ${index}`;
      const name = operator.name ?? null;
      const waiting = name === null ? undefined : status.buffered[name];
      const lines = [about(operator), operator.waits_ms ? `waits ${span(operator.waits_ms)}` : "", waiting ? `${compact(waiting)} waiting` : "", ...(name === null ? [] : counted(status, name))].filter(Boolean);
      boxes.push(box(id, TITLES[operator.operator] ?? words(snake(operator.operator)), lines, waiting ? "water" : "", null));
      if (before !== null) arrows.push({ from: before, to: id, isFlowing });
      const side = operator.table_index ?? operator.stream_index;
      if (typeof side === "number" && before !== `input ${side}`) arrows.push({ from: `input ${side}`, to: id, isFlowing });
      before = id;
    }
  }
  const to = pathOf(`/${plan.output.kind}s/:name`, { name: plan.output.name });
  boxes.push(box("output", plan.output.name, [plan.output.kind, `${compact(status.emitted_rows)} written`], "good", screenFor(to) === null ? null : to));
  if (before !== null) arrows.push({ from: before, to: "output", isFlowing });
  return <Diagram boxes={boxes} arrows={arrows} label="Plan of the query" gap={52} />;
}

const WIDTH = 176;

function box(id: string, title: string, lines: readonly string[], tone: string, to: string | null): Box {
  return {
    id,
    width: WIDTH,
    height: 32 + lines.length * 16,
    tone,
    to,
    label: [title, ...lines].join(", "),
    content: (
      <>
        <text x="12" y="20">{shortened(title, 24)}</text>
        {lines.map((line, row) => (
          <text key={row} x="12" y={37 + row * 16} class="faint">
            {shortened(line, 28)}
          </text>
        ))}
      </>
    ),
  };
}

/** Say what was counted at an input or operator, the most frequent first. */
function counted(status: Status, name: string): string[] {
  return status.counters
    .filter((counter) => counter.input === name)
    .sort((a, b) => b.count - a.count)
    .slice(0, 2)
    .map((counter) => `${compact(counter.count)} ${words(counter.reason)}`);
}

/** Say what matters most of an operator: its condition, its grace, its window. */
function about(operator: PlanOperator): string {
  const parts: string[] = [];
  const { condition, grace_ms: grace, size_ms: size, gap_ms: gap, difference_ms: difference, limit_ms: limit, name, columns, group } = operator;
  if (typeof condition === "string") parts.push(condition);
  if (typeof name === "string" && !name.startsWith("window") && !name.startsWith("suppress")) parts.push(name);
  for (const [value, text] of [[size, ""], [gap, "gap "], [difference, "difference "], [limit, "for "]] as const) if (typeof value === "number") parts.push(`${text}${span(value)}`);
  if (typeof grace === "number") parts.push(`grace ${span(grace)}`);
  if (Array.isArray(columns) && parts.length === 0) parts.push(`${columns.length} columns`);
  if (Array.isArray(group) && group.length > 0 && parts.length < 2) parts.unshift(`by ${group.map((one) => (Array.isArray(one) ? String(one[0]) : String(one))).join(", ")}`);
  return parts.join(" · ");
}

function snake(name: string): string {
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
}
