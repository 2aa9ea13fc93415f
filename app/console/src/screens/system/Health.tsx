/** Whether the service is ready, of which version it is, and how many queries are in which state. */
import { api, ApiError } from "~/api/client";
import { useLive } from "~/api/live";
import { Badge, Facts, Panel, Skeleton, StateBadge, Tile, type Tone } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { compact, count, span } from "~/format";
import { overview } from "~/overview";
import { Link } from "~/router";

const EVERY_MS = 5_000;
const DRIVER: Record<string, [Tone, string]> = {
  ready: ["good", "Queries run."],
  starting: ["water", "The driver starts its engine; queries wait for it."],
  failing: ["bad", "The driver does not come up. Results can be read."],
  none: ["warn", "No driver is there, so no query runs. Results can be read."],
};

export function Health() {
  const ready = useLive((signal) => api.get("/readyz", { signal }), EVERY_MS, []);
  const version = useLive((signal) => api.get("/v1/version", { signal }), null, []);
  const queries = overview.value?.queries ?? [];
  const states = [...new Set(queries.map((query) => query.state))].sort();
  const lag = queries.reduce((sum, query) => sum + (query.lag ?? 0), 0);
  const waiting = queries.reduce((sum, query) => sum + query.waiting, 0);
  return (
    <>
      {ready.error !== null && <ErrorPanel error={ready.error} title={ready.error instanceof ApiError && ready.error.status === 503 ? "The service is not ready" : undefined} />}
      <div class="tiles">
        <Tile name="Queries" value={overview.value === null ? "–" : count(queries.length)} more={<Link to="/">Overview</Link>} />
        <Tile name="Unread records" value={overview.value === null ? "–" : compact(lag)} more="of all queries together" />
        <Tile name="Waiting records" value={overview.value === null ? "–" : compact(waiting)} more="until their time has settled" />
        <Tile name="Streams and tables" value={overview.value === null ? "–" : count(overview.value.relations.length)} more={<Link to="/relations">All of them</Link>} />
      </div>
      <div class="columns">
        <Panel id="ready" title="Readiness" hint={`Updated every ${span(EVERY_MS)}`}>
          {ready.data === null ? (
            ready.error === null ? (
              <Skeleton lines={3} />
            ) : (
              <p class="muted">It is asked again by itself.</p>
            )
          ) : (
            <Facts
              items={[
                ["Database", <Badge tone={ready.data.checks.database === "ok" ? "good" : "bad"} dot>{ready.data.checks.database}</Badge>],
                ["Schema", ready.data.checks.schema ?? "–"],
                ["Driver", <Driver state={ready.data.checks.driver ?? "none"} />],
              ]}
            />
          )}
        </Panel>
        <div class="stack">
          <Panel id="version" title="Version">
            {version.data === null ? <Skeleton lines={2} /> : <Facts items={[["Slackwater", version.data.version], ["Python", version.data.python], ["Interface", version.data.api]]} />}
          </Panel>
          <Panel id="states" title="States of queries">
            {queries.length === 0 ? (
              <p class="muted">There is no query yet.</p>
            ) : (
              <Facts items={states.map((state) => [count(queries.filter((query) => query.state === state).length), <StateBadge key={state} state={state} />])} />
            )}
          </Panel>
        </div>
      </div>
      <p class="small muted">
        Metrics for Prometheus: <a href="/metrics">/metrics</a>. Probes: <a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>.
      </p>
    </>
  );
}

function Driver({ state }: { state: string }) {
  const [tone, about] = DRIVER[state] ?? ["neutral", ""];
  return (
    <span class="row wrap">
      <Badge tone={tone} dot>
        {state}
      </Badge>
      <span class="muted small">{about}</span>
    </span>
  );
}
