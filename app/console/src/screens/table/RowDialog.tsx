/** One row: all of its columns, and of a versioned table how it came to be. */
import { useMemo, useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { Relation, RowsAnswer } from "~/api/types";
import { Button, Facts, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { count, moment, plural, span } from "~/format";
import { Cell, isNumeric, textOf } from "~/records/cells";
import { parametersOf } from "./conditions";
import { Timeline } from "./Timeline";
import { versionsOf, type Row, type Version } from "./versions";

const MOST = 500;

export function RowDialog({ relation, row, answer, onClose }: { relation: Relation; row: Row; answer: RowsAnswer; onClose: () => void }) {
  const isVersioned = answer.history_starts_at_ms !== null;
  const keyText = relation.key.map((name) => textOf(row[name])).join(" · ");
  return (
    <Dialog wide title={keyText === "" ? relation.name : keyText} onClose={onClose} footer={<Button onClick={onClose}>Close</Button>}>
      {isVersioned ? <History relation={relation} row={row} answer={answer} /> : <Facts items={Object.entries(relation.columns).map(([name, type]) => [name, <Cell key={name} value={row[name]} type={type} />])} />}
    </Dialog>
  );
}

function History({ relation, row, answer }: { relation: Relation; row: Row; answer: RowsAnswer }) {
  const key = relation.key.map((column) => ({ column, operator: "eq" as const, value: textOf(row[column]) }));
  // It is another one in each version, which says nothing.
  const eventTime = String((relation.definition as { event_time?: string | null } | null)?.event_time ?? "");
  const found = useLive(
    (signal) =>
      api.get("/v1/tables/{name}/rows", {
        path: { name: relation.name },
        query: { ...parametersOf(key, relation.key), from: "1970-01-01T00:00:00Z", order: "desc", limit: MOST },
        signal,
      }),
    null,
    [relation.name, JSON.stringify(key)],
  );
  const versions = useMemo(() => versionsOf(found.data?.rows ?? [], [...relation.key, eventTime]), [found.data]);
  const horizon = answer.history_starts_at_ms;
  const isCut = versions[0] !== undefined && horizon !== null && versions[0].fromMs <= horizon;
  const numeric = Object.entries(relation.columns).filter(([name, type]) => isNumeric(type) && !relation.key.includes(name));
  const [curve, setCurve] = useState<string | null>(null);
  const [marked, setMarked] = useState<Version | null>(null);
  if (found.error !== null) return <ErrorPanel error={found.error} retry={found.refresh} />;
  if (found.data === null) return <Skeleton lines={6} />;
  const drawn = curve ?? numeric[0]?.[0] ?? null;
  const names = Object.keys(relation.columns).filter((name) => !relation.key.includes(name));
  const reached = answer.stream_time_ms ?? versions.at(-1)?.fromMs ?? 0;
  return (
    <>
      <div class="row wrap spread">
        <span class="muted">
          {plural(versions.length, "version")}
          {found.data.next !== null && `, the newest ${count(MOST)}`}
          {isCut && "; older ones are gone"}
        </span>
        {numeric.length > 1 && (
          <label class="row">
            <span class="muted small nowrap">Curve of</span>
            <select class="input" value={drawn ?? ""} onChange={(event) => setCurve(event.currentTarget.value)}>
              {numeric.map(([name]) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Timeline versions={versions} toMs={reached} column={drawn} marked={marked} onMark={setMarked} />
      <div class="versions scroll-x" tabIndex={0} role="region" aria-label="Versions, newest first">
        <table class="plain">
          <thead>
            <tr>
              <th>Valid from</th>
              <th>For</th>
              {names.map((name) => (
                <th key={name} class={isNumeric(relation.columns[name]) ? "num" : undefined}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {[...versions].reverse().map((version) => (
              <tr key={version.fromMs} class={version === marked ? "is-marked" : undefined} onMouseEnter={() => setMarked(version)} onMouseLeave={() => setMarked(null)}>
                <td class="nowrap">{moment(version.fromMs)}</td>
                <td class="nowrap muted">{version.toMs === null ? "still" : span(version.toMs - version.fromMs)}</td>
                {names.map((name) => (
                  <td key={name} class={[isNumeric(relation.columns[name]) ? "num" : "", version.changed?.includes(name) ? "has-changed" : ""].join(" ")}>
                    <Cell value={version.row[name]} type={relation.columns[name]} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
