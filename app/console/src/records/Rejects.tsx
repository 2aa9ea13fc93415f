/** Records that could not be read: which reasons, and each with its words. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import type { Reject, RejectPage } from "~/api/types";
import { Badge, Button, Empty, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { count, moment, plural, words } from "~/format";
import { usePages } from "./pages";

const PAGE = 50;

export function Rejects({ kind, name }: { kind: "stream" | "table"; name: string }) {
  const [reason, setReason] = useState<string | null>(null);
  const path = kind === "stream" ? "/v1/streams/{name}/rejects" : "/v1/tables/{name}/rejects";
  const pages = usePages<Reject, RejectPage>(
    (cursor, signal) => api.get(path, { path: { name }, query: { reason, cursor, limit: PAGE }, signal }),
    [name, reason],
  );
  if (pages.error !== null) return <ErrorPanel error={pages.error} retry={pages.refresh} />;
  if (pages.head === null) return <Skeleton />;
  const reasons = Object.entries(pages.head.kept).sort((one, other) => other[1] - one[1]);
  if (reasons.length === 0)
    return (
      <Empty title="Every record could be read" icon="good">
        <p>A record of the wrong type, or without an event time, is kept here with its reason. It never stops a query unless you ask for it.</p>
      </Empty>
    );
  return (
    <Panel
      flush
      id="rejects"
      title="Rejects"
      hint="Newest first. The oldest are removed when there are many."
      actions={
        <div class="row wrap" role="group" aria-label="Reason">
          <Button small aria-pressed={reason === null} kind={reason === null ? undefined : "quiet"} onClick={() => setReason(null)}>
            All {count(reasons.reduce((sum, [, number]) => sum + number, 0))}
          </Button>
          {reasons.map(([code, number]) => (
            <Button key={code} small aria-pressed={reason === code} kind={reason === code ? undefined : "quiet"} onClick={() => setReason(code)}>
              {words(code)} {count(number)}
            </Button>
          ))}
        </div>
      }
    >
      <div class="scroll-x body" tabIndex={0}>
        <table class="plain as-blocks">
          <thead>
            <tr>
              <th>When</th>
              <th>Reason</th>
              <th>What is wrong</th>
              <th>How it begins</th>
              <th class="num">Partition and offset</th>
            </tr>
          </thead>
          <tbody>
            {pages.items.map((reject) => (
              <tr key={reject.id}>
                <td class="nowrap" data-label="When">{moment(reject.at)}</td>
                <td class="nowrap" data-label="Reason">
                  <a href={`/v1/errors/${reject.reason}`}>
                    <Badge tone="bad">{words(reject.reason)}</Badge>
                  </a>
                </td>
                <td class="long wide">{plain(reject.detail)}</td>
                <td class="excerpt wide">{reject.excerpt === null ? <span class="muted">not shown to this key</span> : <code>{reject.excerpt}</code>}</td>
                <td class="num nowrap" data-label="Partition and offset">{reject.offset === null ? <span class="muted">refused at once</span> : `${reject.partition}:${reject.offset}`}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {pages.head.next !== null && (
          <Button small onClick={pages.more} disabled={pages.isLoading}>
            Show {plural(PAGE, "more", "more")}
          </Button>
        )}
      </div>
    </Panel>
  );
}
