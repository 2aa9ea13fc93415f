/** What happened to the query, live; and its launches. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useEvents, useLive } from "~/api/live";
import type { QueryEvent } from "~/api/types";
import { Badge, Button, Panel, Skeleton, StateBadge } from "~/components/basics";
import { CodeLink, ErrorPanel, plain } from "~/components/ErrorPanel";
import { ago, count, moment, NONE, span, words } from "~/format";

const SHOWN = 60;
const TONES: Record<string, string> = { running: "good", failed: "bad", backoff: "warn", starting: "water" };

export function History({ name }: { name: string }) {
  const [events, setEvents] = useState<readonly QueryEvent[]>([]);
  const [most, setMost] = useState(SHOWN);
  const follow = useEvents(
    `/v1/queries/${encodeURIComponent(name)}/events`,
    {},
    (event) => {
      if (event.event === "reset") setEvents([]);
      else if (event.event === "event") setEvents((before) => [JSON.parse(event.data) as QueryEvent, ...before]);
    },
    [name],
  );
  const runs = useLive((signal) => api.get("/v1/queries/{name}/runs", { path: { name }, query: { limit: 50 }, signal }), 5_000, [name]);
  return (
    <div class="halves">
      <Panel id="events" title="Events" hint="State changes, requests and edits, newest first" actions={follow.isConnected ? <Badge tone="good" dot moving>live</Badge> : undefined}>
        {follow.error !== null && <ErrorPanel error={follow.error} />}
        {events.length === 0 && follow.error === null && <Skeleton lines={4} />}
        <ol class="timeline" aria-label="Events">
          {events.slice(0, most).map((event) => (
            <li key={event.id}>
              <time class="muted nowrap" dateTime={event.at} title={ago(event.at)}>{moment(event.at)}</time>
              <span class={`dot ${TONES[event.to_state ?? ""] ?? ""}`} />
              <div class="what">
                {event.to_state !== null ? (
                  <>
                    {event.from_state} → <strong>{event.to_state}</strong>
                  </>
                ) : (
                  words(event.kind)
                )}
                <span class="muted small">
                  {" "}
                  by {event.actor}
                  {event.epoch !== null && `, launch ${event.epoch}`}
                </span>
                {event.detail !== null && <Detail detail={event.detail} />}
              </div>
            </li>
          ))}
        </ol>
        {events.length > most && <Button small onClick={() => setMost(most + SHOWN)}>Show more</Button>}
      </Panel>
      <Panel id="runs" title="Launches" hint="Each has an epoch of its own">
        {runs.error !== null && <ErrorPanel error={runs.error} />}
        {runs.data === null ? (
          runs.error === null && <Skeleton lines={4} />
        ) : runs.data.items.length === 0 ? (
          <p class="muted">It has not been launched yet.</p>
        ) : (
          <div class="scroll-x" tabIndex={0}>
            <table class="plain">
              <thead>
                <tr>
                  <th scope="col">Epoch</th>
                  <th scope="col">Began</th>
                  <th scope="col" class="num">Up after</th>
                  <th scope="col">Ended</th>
                </tr>
              </thead>
              <tbody>
                {runs.data.items.map((run) => (
                  <tr key={run.epoch}>
                    <td>{count(run.epoch)}</td>
                    <td class="nowrap">
                      {moment(run.started_at)}
                      <div class="muted small">definition {run.generation}</div>
                    </td>
                    <td class="num nowrap">{run.running_at === null ? NONE : span(new Date(run.running_at).getTime() - new Date(run.started_at).getTime())}</td>
                    <td class="long">
                      {run.ended_at === null ? (
                        <StateBadge state={run.running_at === null ? "starting" : "running"} />
                      ) : (
                        <>
                          {words(run.end_reason ?? "")} <span class="muted small">{moment(run.ended_at)}</span>
                          {run.error !== null && (
                            <div class="late small">
                              {plain(run.error.detail)} <CodeLink code={run.error.code} />
                            </div>
                          )}
                        </>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </div>
  );
}

function Detail({ detail }: { detail: Record<string, unknown> }) {
  const parts = Object.entries(detail).filter(([name, value]) => value !== null && value !== undefined && name !== "rule");
  if (parts.length === 0) return null;
  return (
    <div class="small muted record">
      {parts.map(([name, value]) => `${words(name)}: ${told(value)}`).join(" · ")}
    </div>
  );
}

/** An error is told by its words and its code; the rest of it is for machines. */
function told(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  const { code, detail } = value as { code?: unknown; detail?: unknown };
  return typeof code === "string" && typeof detail === "string" ? `${detail.replaceAll("`", "")} (${code})` : JSON.stringify(value);
}
