/**
 * All queries with their numbers, asked for once for every screen, and a short history of each number.
 *
 * The service keeps no history of numbers: curves begin when the page is opened, and reach back three minutes.
 */
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError, isAborted } from "./api/client";
import type { Overview, OverviewQuery, OverviewRelation } from "./api/types";

const SLOW_MS = 10_000;
const FAST_MS = 2_000;
const LONGEST_PAUSE_MS = 30_000;
const SHARE_OF_TIME = 0.2;
const HISTORY_MS = 180_000;
const PAGE = 1_000;

export interface Sample {
  /** When the service looked, by its own clock. */
  at: number;
  /** Records read a second since the sample before; null: there is none, or the counting started from scratch. */
  rate: number | null;
  /** The same of each relation that it reads, by name. */
  reads: Readonly<Record<string, number | null>>;
  emitted: number | null;
  lag: number | null;
  waiting: number;
  late: number;
  batchMs: number | null;
}

interface Totals {
  at: number;
  read: number;
  reads: Readonly<Record<string, number | null>>;
  emitted: number;
  epochBatch: number | null;
}

export const overview = signal<Overview | null>(null);
export const overviewError = signal<Error | null>(null);
/** When the newest answer came, by this browser's clock. */
export const overviewAt = signal<number | null>(null);

const samples = new Map<string, Sample[]>();
const totals = new Map<string, Totals>();
const flows = new Map<string, { at: number; appended: number; rate: number | null }>();

/** The newest samples of a query, the oldest first. */
export function historyOf(name: string): readonly Sample[] {
  return samples.get(name) ?? [];
}

/** Records that come to a relation each second; null: not known yet. */
export function flowOf(name: string): number | null {
  return flows.get(name)?.rate ?? null;
}

/** Records that a query reads each second; null: not known yet. */
export function rateOf(name: string): number | null {
  return samples.get(name)?.at(-1)?.rate ?? null;
}

/** Records that a query reads of a relation each second; null: not known, or not yet. What reads one relation alone reads all its records there. */
export function readRateOf(query: OverviewQuery, relation: string): number | null {
  const sample = samples.get(query.name)?.at(-1);
  return sample?.reads[relation] ?? (query.reads.length === 1 ? (sample?.rate ?? null) : null);
}

/** Queries that need somebody: the worst first. */
export const attention = computed(() => (overview.value?.queries ?? []).filter((query) => urgency(query) > 0).sort((a, b) => urgency(b) - urgency(a)));

/** How much a query needs somebody: 0 not at all, 4 it has failed. */
export function urgency(query: OverviewQuery): number {
  if (query.state === "failed") return 4;
  if (query.conditions.includes("unreachable")) return 3;
  if (query.state === "backoff") return 3;
  if (query.reason !== null && query.state === "starting") return 3;
  if (query.conditions.includes("unplaced") && query.reason !== null) return 2;
  if (troubleOfDelivery(query) !== null) return query.delivery!.state === "stopped" ? 3 : 2;
  return query.reason !== null ? 1 : 0;
}

/** A delivery that ends with its query, or that a driver is about to take, is in no trouble. */
const NO_TROUBLE = ["query_stopped", "no_driver"];

/** Why a query's results do not come to where they shall; null: they do, or nobody wants it now. */
export function troubleOfDelivery(query: OverviewQuery): NonNullable<OverviewQuery["delivery"]>["reason"] {
  const reason = query.delivery?.reason ?? null;
  return reason === null || NO_TROUBLE.includes(reason.code) ? null : reason;
}

export function relationOf(name: string): OverviewRelation | undefined {
  return overview.value?.relations.find((relation) => relation.name === name);
}

async function load(abort: AbortSignal): Promise<Overview> {
  const first = await api.get("/v1/overview", { query: { limit: PAGE }, signal: abort });
  const queries = [...first.queries];
  const relations = new Map(first.relations.map((relation) => [relation.name, relation]));
  let next = first.next;
  while (next !== null) {
    const page = await api.get("/v1/overview", { query: { limit: PAGE, cursor: next }, signal: abort });
    queries.push(...page.queries);
    for (const relation of page.relations) relations.set(relation.name, relation);
    next = page.next;
  }
  return { at: first.at, queries, relations: [...relations.values()], next: null };
}

function note(found: Overview): void {
  const at = new Date(found.at).getTime();
  const present = new Set<string>();
  for (const query of found.queries) {
    present.add(query.name);
    const before = totals.get(query.name);
    const isGoingOn = before !== undefined && query.read_rows >= before.read && query.emitted_rows >= before.emitted && at > before.at;
    const seconds = isGoingOn ? (at - before.at) / 1_000 : 0;
    const list = samples.get(query.name) ?? [];
    const reads = Object.fromEntries(query.reads.map((read) => [read.relation, read.read_rows]));
    list.push({
      at,
      rate: isGoingOn ? (query.read_rows - before.read) / seconds : null,
      reads: isGoingOn ? perSecond(before.reads, reads, seconds) : {},
      emitted: isGoingOn ? (query.emitted_rows - before.emitted) / seconds : null,
      lag: query.lag,
      waiting: query.waiting,
      late: query.late,
      batchMs: query.batch_ms,
    });
    while (list.length > 0 && list[0]!.at < at - HISTORY_MS) list.shift();
    samples.set(query.name, list);
    totals.set(query.name, { at, read: query.read_rows, reads, emitted: query.emitted_rows, epochBatch: query.batch_id });
  }
  for (const relation of found.relations) {
    if (relation.appended === null) continue;
    const before = flows.get(relation.name);
    const isGoingOn = before !== undefined && relation.appended >= before.appended && at > before.at;
    flows.set(relation.name, { at, appended: relation.appended, rate: isGoingOn ? ((relation.appended - before.appended) * 1_000) / (at - before.at) : null });
  }
  for (const name of samples.keys()) {
    if (!present.has(name)) {
      samples.delete(name);
      totals.delete(name);
    }
  }
}

function perSecond(before: Totals["reads"], now: Totals["reads"], seconds: number): Sample["reads"] {
  return Object.fromEntries(
    Object.entries(now).map(([relation, rows]) => {
      const read = rows !== null && before[relation] != null ? rows - before[relation] : -1;
      return [relation, read < 0 ? null : read / seconds];
    }),
  );
}

let watchers = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let ending: AbortController | null = null;
let failures = 0;

async function run(): Promise<void> {
  clearTimeout(timer);
  if (ending === null) return;
  const { signal: abort } = ending;
  const began = performance.now();
  let pause = watchers > 0 ? FAST_MS : SLOW_MS;
  try {
    const found = await load(abort);
    note(found);
    overview.value = found;
    overviewError.value = null;
    overviewAt.value = Date.now();
    failures = 0;
  } catch (error) {
    if (abort.aborted || isAborted(error)) return;
    overviewError.value = error as Error;
    failures += 1;
    pause = Math.max(Math.min(FAST_MS * 2 ** failures, LONGEST_PAUSE_MS), error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0);
  }
  if (!document.hidden && !abort.aborted) timer = setTimeout(run, Math.max(pause, (performance.now() - began) / SHARE_OF_TIME));
}

function onVisible(): void {
  if (!document.hidden) void run();
}

/** Begin to ask; returns what ends it. */
export function startOverview(): () => void {
  ending = new AbortController();
  document.addEventListener("visibilitychange", onVisible);
  void run();
  return () => {
    ending?.abort();
    ending = null;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onVisible);
    overview.value = null;
    samples.clear();
    totals.clear();
    flows.clear();
  };
}

/** Ask again now, such as after a query was changed. */
export function refreshOverview(): void {
  void run();
}

/** Have the numbers every two seconds as long as the component is shown. */
export function useFastOverview(): void {
  useEffect(() => {
    watchers += 1;
    void run();
    return () => {
      watchers -= 1;
    };
  }, []);
}
