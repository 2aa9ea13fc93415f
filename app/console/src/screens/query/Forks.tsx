/** A query and its fork side by side: what the fork does otherwise, how both stand, in what their results differ, and the swap. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import { RELATION_PATH } from "~/api/paths";
import type { OneQuery, OverviewRelation, Status } from "~/api/types";
import { Badge, Button, Note, Panel, Skeleton, StateBadge } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { Segments } from "~/components/Tabs";
import { notify } from "~/components/toasts";
import { count, moment, plural, words } from "~/format";
import { overview, refreshOverview, relationOf } from "~/overview";
import { textOf } from "~/records/cells";
import { navigate, pathOf } from "~/router";
import { may } from "~/session";
import { comparedRecords, comparedRows, type Compared, type Difference, type Values } from "./comparing";
import { lagOf, waitingOf } from "./Now";

/** The original and the forks of it that a query is one of; null: it is no fork and has none. */
export function familyOf(name: string): { original: string; forks: string[] } | null {
  const queries = overview.value?.queries ?? [];
  const own = queries.find((query) => query.name === name)?.fork_of ?? null;
  if (own !== null && queries.some((query) => query.name === own)) return { original: own, forks: [name] };
  const forks = queries.filter((query) => query.fork_of === name).map((query) => query.name);
  return forks.length === 0 ? null : { original: name, forks };
}

export function Forks({ name }: { name: string }) {
  const family = familyOf(name);
  const [chosen, setChosen] = useState<string | null>(null);
  if (family === null) return <p class="muted">It is no fork of a query that is there, and has none.</p>;
  const fork = chosen !== null && family.forks.includes(chosen) ? chosen : family.forks[0]!;
  return (
    <>
      {family.forks.length > 1 && <Segments label="Fork" options={family.forks.map((each) => [each, each] as const)} value={fork} onChange={setChosen} />}
      <Pair key={`${family.original} ${fork}`} original={family.original} fork={fork} />
    </>
  );
}

function Pair({ original, fork }: { original: string; fork: string }) {
  const both = useLive(async (signal) => Promise.all([original, fork].map((name) => api.get("/v1/queries/{name}", { path: { name }, signal }))), 15_000, [original, fork]);
  const statuses = useLive(async (signal) => Promise.all([original, fork].map((name) => api.get("/v1/queries/{name}/status", { path: { name }, signal }))), 2_000, [original, fork]);
  const [isSwapping, setSwapping] = useState(false);
  const failure = both.error ?? statuses.error;
  if (both.data === null || statuses.data === null) return failure === null ? <Skeleton lines={6} /> : <ErrorPanel error={failure} retry={both.refresh} />;
  const [one, other] = both.data as [OneQuery, OneQuery];
  const [first, second] = statuses.data as [Status, Status];
  return (
    <>
      <Otherwise original={one} fork={other} />
      <Standing original={first} fork={second} />
      <Results original={original} fork={fork} isEven={readOf(first) === readOf(second)} />
      {may("write") && (
        <div>
          <Button kind="primary" icon="fork" class="long" onClick={() => setSwapping(true)}>
            Put {fork} in the place of {original}
          </Button>
        </div>
      )}
      {isSwapping && <SwapDialog original={one} fork={fork} difference={readTotal(first) - readTotal(second)} onClose={() => setSwapping(false)} />}
    </>
  );
}

/** How far a query has read, as one text: equal texts, equal inputs. */
function readOf(status: Status): string {
  return JSON.stringify(status.progress.map((feed) => [feed.feed, feed.partitions.map((part) => [part.partition, part.next_offset])]));
}

function readTotal(status: Status): number {
  return status.progress.flatMap((feed) => feed.partitions).reduce((sum, part) => sum + part.next_offset, 0);
}

/** The definition that the original would have: the fork's, under the original's names. */
function takenOver(original: OneQuery, fork: OneQuery): Record<string, unknown> {
  const { desired_state: _, ...definition } = fork.definition as Record<string, unknown>;
  const names = (original.definition as { into: { stream?: string | null; table?: string | null } }).into;
  const into = { ...(definition.into as Record<string, unknown>), ...(names.table == null ? { stream: names.stream } : { table: names.table }) };
  return { ...definition, name: original.name, into };
}

function Otherwise({ original, fork }: { original: OneQuery; fork: OneQuery }) {
  const found = useLive((signal) => api.post("/v1/comparisons", { body: { definitions: [{ kind: "query", name: original.name, definition: takenOver(original, fork) }] }, signal }), null, [original.version, fork.version]);
  const item = found.data?.items[0];
  return (
    <Panel id="otherwise" title="What the fork does otherwise" hint={<>The definition of <QueryLink name={fork.name} /> compared with that of <QueryLink name={original.name} /></>}>
      {found.error !== null ? (
        <ErrorPanel error={found.error} retry={found.refresh} />
      ) : item === undefined ? (
        <Skeleton lines={2} />
      ) : (
        <div class="stack">
          {item.action === "no_op" && <p>Nothing: both definitions are the same.</p>}
          {item.changes.length > 0 && (
            <div class="scroll-x" tabIndex={0}>
              <table class="plain">
                <thead>
                  <tr>
                    <th scope="col">Field</th>
                    <th scope="col">In {original.name}</th>
                    <th scope="col">In {fork.name}</th>
                    <th scope="col">As an edit</th>
                  </tr>
                </thead>
                <tbody>
                  {item.changes.map((change) => (
                    <tr key={change.pointer}>
                      <td class="nowrap">
                        <code>{change.pointer}</code>
                      </td>
                      <td class="name">{valueAt(original.definition, change.pointer)}</td>
                      <td class="name">{valueAt(fork.definition, change.pointer)}</td>
                      <td class="long">
                        {words(change.kind)}
                        {change.reason !== "" && <span class="muted small"> {plain(change.reason)}</span>}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {item.problems.map((problem) => (
            <Note key={problem.pointer + problem.detail} tone="bad">
              <span>{plain(problem.detail)}</span>
            </Note>
          ))}
        </div>
      )}
    </Panel>
  );
}

function valueAt(definition: unknown, pointer: string) {
  const found = pointer
    .split("/")
    .slice(1)
    .reduce<unknown>((inner, part) => (typeof inner === "object" && inner !== null ? (inner as Values)[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined), definition);
  return found === undefined || found === null ? <span class="muted">absent</span> : <code>{textOf(found)}</code>;
}

function Standing({ original, fork }: { original: Status; fork: Status }) {
  const late = (name: string): number | undefined => overview.value?.queries.find((query) => query.name === name)?.late;
  const rows: [string, (status: Status) => preact.ComponentChildren][] = [
    ["State", (status) => <StateBadge state={status.state} phase={status.phase} unreachable={status.conditions.includes("unreachable")} />],
    ["Position in its inputs", (status) => count(readTotal(status))],
    ["Behind", (status) => count(lagOf(status))],
    ["Waiting", (status) => count(waitingOf(status))],
    ["Late", (status) => count(late(status.name))],
    ["Written", (status) => count(status.emitted_rows)],
    ["Stream time", (status) => moment(status.stream_time_ms)],
  ];
  const difference = readTotal(original) - readTotal(fork);
  return (
    <Panel id="standing" title="How both stand">
      <div class="stack">
        <div class="scroll-x" tabIndex={0}>
          <table class="plain pair">
            <thead>
              <tr>
                <th scope="col">
                  <span class="unseen">Number</span>
                </th>
                <th scope="col" class="num">{original.name}</th>
                <th scope="col" class="num">{fork.name}, its fork</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([title, value]) => (
                <tr key={title}>
                  <th scope="row">{title}</th>
                  <td class="num">{value(original)}</td>
                  <td class="num">{value(fork)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {readOf(original) !== readOf(fork) && (
          <Note tone="warn">
            <span>
              They have not read the same{difference === 0 ? "" : `: ${(difference > 0 ? fork : original).name} is ${plural(Math.abs(difference), "record")} behind the other`}. Results differ by that, too, until they have.
            </span>
          </Note>
        )}
      </div>
    </Panel>
  );
}

/** So many rows, or records, of each are looked at. */
const MOST = 5_000;
const SHOWN = 200;

async function compare(original: OverviewRelation, fork: OverviewRelation, signal: AbortSignal): Promise<{ found: Compared; columns: string[]; keys: string[]; own: string[] }> {
  const isTable = original.kind === "table";
  const shapes = await Promise.all([original, fork].map((one) => api.get(RELATION_PATH[original.kind], { path: { name: one.name }, signal })));
  const [first, second] = shapes.map((shape) => Object.keys(shape.columns)) as [string[], string[]];
  const columns = first.filter((name) => second.includes(name));
  const own = [...first, ...second].filter((name) => !columns.includes(name));
  const key = shapes[0]!.key;
  if (isTable) {
    const [one, other] = await Promise.all([original, fork].map((each) => api.get("/v1/tables/{name}/rows", { path: { name: each.name }, query: { limit: MOST, bigints: "string" }, signal })));
    const isCut = one!.next !== null || other!.next !== null;
    return { found: comparedRows(one!.rows as Values[], other!.rows as Values[], key, columns.filter((name) => !key.includes(name)), isCut), columns, keys: key, own };
  }
  const ask = (name: string, offset: number | null, limit: number) => api.get("/v1/streams/{name}/records", { path: { name }, query: { offset, limit, bigints: "string" }, signal });
  const ends = await Promise.all([original, fork].map(async (each) => (await ask(each.name, null, 1)).end_offset));
  const from = Math.max(0, Math.min(...ends) - MOST);
  const [one, other] = await Promise.all([original, fork].map((each) => ask(each.name, from === 0 ? null : from, MOST)));
  return { found: comparedRecords(one!.records as Values[], other!.records as Values[], columns, from > 0 || Math.max(...ends) > MOST), columns, keys: key, own };
}

function Results({ original, fork, isEven }: { original: string; fork: string; isEven: boolean }) {
  const written = (name: string): OverviewRelation | undefined => relationOf(overview.value?.queries.find((query) => query.name === name)?.writes ?? "");
  const [one, other] = [written(original), written(fork)];
  const [tries, setTries] = useState(0);
  const compared = useLive(async (signal) => (one === undefined || other === undefined ? null : await compare(one, other, signal)), null, [one?.name, other?.name, tries]);
  const what = one?.kind === "stream" ? "record" : "row";
  return (
    <Panel
      id="differences"
      title="In what their results differ"
      actions={
        <Button small icon="restart" disabled={compared.isLoading} onClick={() => setTries(tries + 1)}>
          Compare again
        </Button>
      }
    >
      {compared.error !== null ? (
        <ErrorPanel error={compared.error} retry={() => setTries(tries + 1)} />
      ) : compared.data === null ? (
        <Skeleton lines={3} />
      ) : (
        <div class="stack">
          <Sums found={compared.data.found} own={compared.data.own} original={original} fork={fork} what={what} isEven={isEven} />
          {compared.data.found.differences.length > 0 && <Differences found={compared.data.found} columns={compared.data.columns} keys={compared.data.keys} original={original} fork={fork} />}
        </div>
      )}
    </Panel>
  );
}

function Sums({ found, own, original, fork, what, isEven }: { found: Compared; own: readonly string[]; original: string; fork: string; what: string; isEven: boolean }) {
  const sum = (where: Difference["where"]): number => found.differences.filter((each) => each.where === where).length;
  const parts = [
    `${count(found.equal)} equal`,
    ...(sum("both") > 0 ? [`${count(sum("both"))} with other values`] : []),
    ...(sum("original") > 0 ? [`${count(sum("original"))} only in ${original}`] : []),
    ...(sum("fork") > 0 ? [`${count(sum("fork"))} only in ${fork}`] : []),
  ];
  return (
    <Note tone={found.differences.length === 0 ? "good" : "warn"}>
      <strong>{found.differences.length === 0 ? (found.equal === 0 ? `Neither has a ${what} yet` : "No difference") : plural(found.differences.length, "difference")}</strong>
      <span>
        {plural(found.original, what)} of {original} and {plural(found.fork, what)} of {fork} compared: {parts.join(", ")}.
      </span>
      {own.length > 0 && <span>Columns that only one of them has are left out: {own.join(", ")}.</span>}
      {found.isCut && <span>There are more: {what === "row" ? "the first by key" : "the newest"} were looked at.</span>}
      {!isEven && <span>They have not read the same, so some of it may be a matter of time.</span>}
    </Note>
  );
}

const WHERE = { both: ["warn", "other values"], original: ["bad", "only in the original"], fork: ["water", "only in the fork"] } as const;

function Differences({ found, columns, keys, original, fork }: { found: Compared; columns: string[]; keys: string[]; original: string; fork: string }) {
  const shown = found.differences.slice(0, SHOWN);
  return (
    <>
      <div class="scroll-x" tabIndex={0}>
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Where</th>
              {keys.map((name) => (
                <th key={name} scope="col">{name}</th>
              ))}
              <th scope="col">In {original}</th>
              <th scope="col">In {fork}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((each) => {
              const told = each.where === "both" ? each.columns : columns.filter((name) => !keys.includes(name));
              return (
                <tr key={each.id}>
                  <td>
                    <Badge tone={WHERE[each.where][0]}>{WHERE[each.where][1]}</Badge>
                  </td>
                  {keys.map((name) => (
                    <td key={name} class="nowrap">{textOf((each.original ?? each.fork)![name])}</td>
                  ))}
                  <Side values={each.original} names={told} />
                  <Side values={each.fork} names={told} />
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {found.differences.length > SHOWN && <p class="small muted">The first {count(SHOWN)} of {count(found.differences.length)} are shown.</p>}
    </>
  );
}

function Side({ values, names }: { values: Values | null; names: readonly string[] }) {
  if (values === null) return <td class="muted">not there</td>;
  return (
    <td class="long">
      {names.map((name, at) => (
        <span key={name}>
          {at > 0 && ", "}
          <span class="muted">{name}</span> {textOf(values[name])}
        </span>
      ))}
    </td>
  );
}

function SwapDialog({ original, fork, difference, onClose }: { original: OneQuery; fork: string; difference: number; onClose: () => void }) {
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const go = (): void => {
    setBusy(true);
    setError(null);
    api
      .put("/v1/queries/{name}", { path: { name: original.name }, query: { from_fork: fork }, headers: { "if-match": `"${original.version}"` } })
      .then(() => {
        refreshOverview();
        notify(`${original.name} goes on as ${fork} was.`);
        navigate(pathOf("/queries/:name", { name: original.name }));
      })
      .catch((failure: Error) => {
        setError(failure);
        setBusy(false);
      });
  };
  return (
    <Dialog
      title={`Put ${fork} in the place of ${original.name}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" solid disabled={isBusy} onClick={go}>
            Swap
          </Button>
        </>
      }
    >
      <ul class="steps">
        <li>
          {original.name} gets the definition, the result, the state and the position of {fork}, under its own names.
        </li>
        <li>
          Its own result of today is gone for good, and so is the query {fork}.
        </li>
        <li>Reads go on. Clients that follow its changes have to start again.</li>
        {difference > 0 && <li>{fork} is {plural(difference, "record")} behind: the result goes back to where the fork is, and on from there.</li>}
      </ul>
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}
