/** Records of the query's inputs that could not be read. They never stop a query. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { OverviewRelation } from "~/api/types";
import { Button, Empty, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { RelationLink } from "~/components/links";
import { count, moment, NONE, words } from "~/format";
import { relationOf } from "~/overview";

export function Rejects({ relations }: { relations: readonly string[] }) {
  const sources = relations.map(relationOf).filter((relation): relation is OverviewRelation => relation?.origin === "source");
  if (sources.length === 0)
    return (
      <div class="panel">
        <Empty title="Its inputs are results of other queries" icon="good">
          <p>Only what comes from outside can be refused.</p>
        </Empty>
      </div>
    );
  return (
    <>
      {sources.map((relation) => (
        <OfRelation key={relation.name} relation={relation} />
      ))}
    </>
  );
}

function OfRelation({ relation }: { relation: OverviewRelation }) {
  const [reason, setReason] = useState("");
  const page = useLive(
    (signal) => api.get(relation.kind === "table" ? "/v1/tables/{name}/rejects" : "/v1/streams/{name}/rejects", { path: { name: relation.name }, query: { reason, limit: 50 }, signal }),
    5_000,
    [relation.name, reason],
  );
  const kept = Object.entries(page.data?.kept ?? {});
  return (
    <Panel
      id={`rejects-${relation.name}`}
      title={<>Rejects of <RelationLink name={relation.name} kind={relation.kind} /></>}
      hint="Records that could not be read, the newest first"
    >
      <div class="stack">
        {page.error !== null && <ErrorPanel error={page.error} />}
        {kept.length > 0 && (
          <div class="row wrap">
            {kept.map(([code, number]) => (
              <Button key={code} small aria-pressed={reason === code} onClick={() => setReason(reason === code ? "" : code)}>
                {words(code)} <strong>{count(number)}</strong>
              </Button>
            ))}
          </div>
        )}
        {page.data === null ? (
          page.error === null && <Skeleton lines={3} />
        ) : page.data.items.length === 0 ? (
          <p class="muted">Every record could be read.</p>
        ) : (
          <div class="scroll-x" tabIndex={0}>
            <table class="plain as-blocks">
              <thead>
                <tr>
                  <th scope="col">When</th>
                  <th scope="col">Partition : offset</th>
                  <th scope="col">Why</th>
                  <th scope="col">Record</th>
                </tr>
              </thead>
              <tbody>
                {page.data.items.map((reject) => (
                  <tr key={reject.id}>
                    <td class="nowrap" data-label="When">{moment(reject.at)}</td>
                    <td class="nowrap" data-label="Partition : offset">{reject.offset === null ? NONE : `${reject.partition} : ${reject.offset}`}</td>
                    <td class="long wide">
                      {plain(reject.detail)} <a class="small" href={`/v1/errors/${reject.reason}`}>{reject.reason}</a>
                    </td>
                    <td class="record wide">{reject.excerpt ?? NONE}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </Panel>
  );
}
