/** What reads what: relations and queries, with how much flows on each arrow and how far its reader is behind. */
import { useMemo } from "preact/hooks";
import type { Overview, OverviewQuery } from "~/api/types";
import { Button, Empty, Panel } from "~/components/basics";
import { Diagram, shortened, showBox, type Arrow, type Box } from "~/components/Diagram";
import { compact, rate, words } from "~/format";
import { flowOf, historyOf, readRateOf, troubleOfDelivery, urgency } from "~/overview";
import { pathOf, place, setQuery } from "~/router";
import { screenFor } from "~/screens/registry";

/** More would not be legible, and takes seconds to lay out. */
const MOST_BOXES = 150;
const HEIGHT = 46;
/** Names of queries in trouble above the picture. */
const MOST_NAMED = 8;

export function Graph({ overview }: { overview: Overview }) {
  const around = place.value.query.get("around") ?? "";
  const names = useMemo(() => [...overview.relations.map((one) => one.name), ...overview.queries.map((one) => one.name)].sort(), [overview]);
  const shown = around === "" ? new Set(overview.queries.map((one) => one.name)) : near(overview, around);
  const queries = overview.queries.filter((query) => shown.has(query.name));
  const needed = new Set(queries.flatMap((query) => [...query.reads.map((read) => read.relation), ...(query.writes === null ? [] : [query.writes])]));
  const relations = overview.relations.filter((relation) => needed.has(relation.name));
  const isTooLarge = queries.length + relations.length > MOST_BOXES;

  const boxes: Box[] = [];
  const arrows: Arrow[] = [];
  if (!isTooLarge) {
    for (const relation of relations) {
      const to = pathOf(`/${relation.kind}s/:name`, { name: relation.name });
      boxes.push({
        id: `relation ${relation.name}`,
        width: width(relation.name),
        height: HEIGHT,
        tone: "sunken",
        to: screenFor(to) === null ? null : to,
        label: `${relation.kind} ${relation.name}, ${rate(flowOf(relation.name))}`,
        content: <Lines first={relation.name} second={`${relation.kind} · ${rate(flowOf(relation.name))}`} />,
      });
    }
    for (const query of queries) {
      const sample = historyOf(query.name).at(-1);
      boxes.push({
        id: `query ${query.name}`,
        width: Math.max(width(query.name) + 14, 206),
        height: HEIGHT,
        shape: "round",
        tone: tone(query),
        to: pathOf("/queries/:name", { name: query.name }),
        label: `query ${query.name}, ${query.state}, ${compact(query.waiting)} waiting`,
        content: <Lines first={query.name} second={about(query)} indent={16} />,
        urgency: urgency(query),
      });
      for (const read of query.reads) {
        // Of a topic the reader's own lag is known, and which relation it is of where it reads one alone.
        const lag = read.lag ?? (query.reads.length === 1 ? query.lag : null);
        const flow = readRateOf(query, read.relation);
        arrows.push({
          from: `relation ${read.relation}`,
          to: `query ${query.name}`,
          lines: [rate(flow), behind(query, lag)],
          isFlowing: query.state === "running" && (flow ?? sample?.rate ?? 0) > 0,
          tone: (lag ?? 0) > 0 ? "late" : undefined,
        });
      }
      if (query.writes !== null)
        arrows.push({ from: `query ${query.name}`, to: `relation ${query.writes}`, lines: [rate(sample?.emitted)], isFlowing: (sample?.emitted ?? 0) > 0 });
    }
  }
  return (
    <Panel
      id="graph"
      title="What reads what"
      hint="Arrows move while records flow. Each says how many flow a second, and how far its reader is behind."
      actions={
        <label class="field">
          <span class="unseen">Only what is around</span>
          <input class="input" list="graph-names" placeholder="Only what is around …" value={around} onChange={(event) => setQuery({ around: event.currentTarget.value.trim() })} />
          <datalist id="graph-names">
            {names.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </label>
      }
    >
      {isTooLarge ? (
        <Empty title="Too much for one picture" icon="query">
          <p>{`There are ${queries.length} queries and ${relations.length} relations. Name one of them above, and see what it is made of and what is made of it.`}</p>
        </Empty>
      ) : boxes.length === 0 ? (
        <Empty title={`Nothing is called ${around}`} icon="search" />
      ) : (
        <>
          <InTrouble queries={queries} />
          <Diagram boxes={boxes} arrows={arrows} label="Graph of relations and queries" />
        </>
      )}
    </Panel>
  );
}

/** Those of the graph that need somebody, to go to: it may be larger than the window. */
function InTrouble({ queries }: { queries: readonly OverviewQuery[] }) {
  const worst = queries.filter((query) => urgency(query) > 0).sort((a, b) => urgency(b) - urgency(a));
  if (worst.length === 0) return null;
  return (
    <div class="row wrap in-trouble" role="group" aria-label="In this graph they need attention">
      <span class="muted small">Show what needs attention:</span>
      {worst.slice(0, MOST_NAMED).map((query) => (
        <Button key={query.name} small onClick={() => showBox(`query ${query.name}`)}>
          {query.name}
        </Button>
      ))}
      {worst.length > MOST_NAMED && <span class="muted small">and {worst.length - MOST_NAMED} more</span>}
    </div>
  );
}

/** Say of a query what matters most: what is wrong, else what waits. */
function about(query: OverviewQuery): string {
  const state = query.conditions.includes("unreachable") ? "unreachable" : query.state === "backoff" ? "retrying" : query.state;
  const reason = query.reason ?? troubleOfDelivery(query);
  return shortened(`query · ${state} · ${reason === null ? `${compact(query.waiting)} waiting` : words(reason.code)}`, 32);
}

/** Say how far a reader is: an input whose end nobody knows looks like one that is read to it otherwise. */
function behind(query: OverviewQuery, lag: number | null): string {
  if (lag === null) return query.batch_id === null ? "not read yet" : "lag unknown";
  return lag > 0 ? `${compact(lag)} behind` : "read to its end";
}

function Lines({ first, second, indent = 12 }: { first: string; second: string; indent?: number }) {
  return (
    <>
      <text x={indent} y="19">{shortened(first, 28)}</text>
      <text x={indent} y="36" class="faint">{second}</text>
    </>
  );
}

function width(name: string): number {
  return Math.max(130, Math.min(name.length, 28) * 7.4 + 26);
}

function tone(query: OverviewQuery): string {
  if (query.state === "failed" || query.conditions.includes("unreachable")) return "bad";
  if (urgency(query) > 0) return "warn";
  return query.state === "running" ? "good" : query.state === "starting" ? "water" : "";
}

/** Return the queries upstream and downstream of a relation or a query. */
function near(overview: Overview, name: string): Set<string> {
  const found = new Set<string>();
  const follow = (next: (query: OverviewQuery) => readonly string[], matches: (query: OverviewQuery, relation: string) => boolean): void => {
    const seen = new Set<string>();
    let open = [name, ...overview.queries.filter((query) => query.name === name).flatMap(next)];
    for (const query of overview.queries) if (query.name === name) found.add(query.name);
    while (open.length > 0) {
      const relation = open.pop()!;
      if (seen.has(relation)) continue;
      seen.add(relation);
      for (const query of overview.queries) {
        if (!matches(query, relation)) continue;
        found.add(query.name);
        open = [...open, ...next(query)];
      }
    }
  };
  const written = (query: OverviewQuery): readonly string[] => (query.writes === null ? [] : [query.writes]);
  const read = (query: OverviewQuery): readonly string[] => query.reads.map((one) => one.relation);
  follow(written, (query, relation) => read(query).includes(relation));
  follow(read, (query, relation) => query.writes === relation);
  return found;
}
