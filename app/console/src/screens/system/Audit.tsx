/** The audit log: who changed what, from what to what, and who was refused. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import type { AuditEntry } from "~/api/types";
import { Badge, Button, Empty, Facts, Panel, Skeleton } from "~/components/basics";
import { Code } from "~/components/Code";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Segments } from "~/components/Tabs";
import { count, moment, words } from "~/format";
import { usePages } from "~/records/pages";
import { differences } from "./differences";

type Outcome = "all" | "done" | "refused";
const PAGE = 100;
const REST_MS = 300;

export function Audit() {
  const [outcome, setOutcome] = useState<Outcome>("all");
  const [actor, setActor] = useState("");
  const [resource, setResource] = useState("");
  const [asked, setAsked] = useState({ actor: "", resource: "" });
  const [timer, setTimer] = useState<ReturnType<typeof setTimeout>>();
  const [chosen, setChosen] = useState<AuditEntry | null>(null);
  const pages = usePages<AuditEntry, { items: AuditEntry[]; next: string | null }>(
    (cursor, signal) => api.get("/v1/audit", { query: { outcome: outcome === "all" ? null : outcome, actor: asked.actor, resource: asked.resource, cursor, limit: PAGE }, signal }),
    [outcome, asked.actor, asked.resource],
  );
  const typed = (next: { actor: string; resource: string }): void => {
    setActor(next.actor);
    setResource(next.resource);
    clearTimeout(timer);
    setTimer(setTimeout(() => setAsked(next), REST_MS));
  };
  return (
    <>
      <div class="row wrap">
        <Segments<Outcome>
          label="Outcome"
          value={outcome}
          options={[
            ["all", "All"],
            ["done", "Done"],
            ["refused", "Refused"],
          ]}
          onChange={setOutcome}
        />
        <input class="input system-find" type="search" aria-label="Who" placeholder="Who (exact name)" value={actor} onInput={(event) => typed({ actor: event.currentTarget.value, resource })} />
        <input class="input system-find" type="search" aria-label="What" placeholder="What (exact name)" value={resource} onInput={(event) => typed({ actor, resource: event.currentTarget.value })} />
      </div>
      {pages.error !== null ? (
        <ErrorPanel error={pages.error} retry={pages.refresh} />
      ) : pages.head === null ? (
        <Skeleton lines={8} />
      ) : (
        <Panel flush id="audit" title="Audit log" hint="Newest first. An entry is committed with its change.">
          {pages.items.length === 0 ? (
            <Empty title="There is no such entry" />
          ) : (
            <div class="body scroll-x">
              <table class="plain as-blocks">
                <thead>
                  <tr>
                    <th>When</th>
                    <th>Who</th>
                    <th>Did</th>
                    <th>To what</th>
                    <th>Outcome</th>
                    <th>
                      <span class="unseen">More</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {pages.items.map((entry) => (
                    <tr key={entry.id}>
                      <td class="nowrap" data-label="When">{moment(entry.at)}</td>
                      <td data-label="Who">
                        {entry.actor.name} {entry.actor.name !== entry.actor.type && <span class="muted small">{words(entry.actor.type)}</span>}
                      </td>
                      <td data-label="Did">{words(entry.action)}</td>
                      <td data-label="To what">
                        {entry.resource.name ?? "–"} <span class="muted small">{entry.resource.type === null ? "" : words(entry.resource.type)}</span>
                      </td>
                      <td class="nowrap" data-label="Outcome">
                        <Badge tone={entry.outcome === "done" ? "good" : "bad"}>{entry.outcome === "done" ? "done" : words(entry.code ?? "refused")}</Badge>
                        {entry.repeats > 0 && <span class="muted small"> and {count(entry.repeats)} more</span>}
                      </td>
                      <td class="num">
                        <Button small kind="quiet" onClick={() => setChosen(entry)} aria-label={`Show entry ${entry.id}`}>
                          Show
                        </Button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
              {pages.head.next !== null && (
                <Button small onClick={pages.more} disabled={pages.isLoading}>
                  Show more
                </Button>
              )}
            </div>
          )}
        </Panel>
      )}
      {chosen !== null && <Entry entry={chosen} onClose={() => setChosen(null)} />}
    </>
  );
}

function Entry({ entry, onClose }: { entry: AuditEntry; onClose: () => void }) {
  const changed = differences(entry.before, entry.after);
  return (
    <Dialog wide title={`${words(entry.action)} ${entry.resource.name ?? ""}`} onClose={onClose} footer={<Button onClick={onClose}>Close</Button>}>
      <Facts
        items={[
          ["When", moment(entry.at)],
          ["Who", `${entry.actor.name} (${words(entry.actor.type)})`],
          ["Request", entry.request_id === null ? "–" : <code key="id">{entry.request_id}</code>],
        ]}
      />
      {entry.before !== null && entry.after !== null && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="What changed">
          <table class="plain">
            <thead>
              <tr>
                <th>What changed</th>
                <th>Before</th>
                <th>After</th>
              </tr>
            </thead>
            <tbody>
              {changed.map((each) => (
                <tr key={each.pointer}>
                  <td>
                    <code>{each.pointer}</code>
                  </td>
                  <td>{shown(each.before)}</td>
                  <td>{shown(each.after)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {entry.after !== null && entry.before === null && <Code language="json" label="After" text={JSON.stringify(entry.after, null, 2)} />}
      {entry.before !== null && entry.after === null && <Code language="json" label="Before" text={JSON.stringify(entry.before, null, 2)} />}
    </Dialog>
  );
}

function shown(value: unknown) {
  return value === undefined ? <span class="muted">not there</span> : <code>{JSON.stringify(value)}</code>;
}
