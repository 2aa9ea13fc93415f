/** Pause, resume, restart, fork, delete. What one may not do is not offered; what is lost for good is said before. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import { RELATION_PATH } from "~/api/paths";
import type { OneQuery, Status } from "~/api/types";
import { Button, Note, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { notify, notifyError } from "~/components/toasts";
import { count, plural } from "~/format";
import { overview, refreshOverview, relationOf } from "~/overview";
import { navigate, pathOf } from "~/router";
import { may } from "~/session";
import { waitingOf } from "./Now";

type DesiredState = "running" | "paused" | "stopped";
type Open = "fork" | "delete" | null;

export function Actions({ query, status, onDone }: { query: OneQuery; status: Status; onDone: () => void }) {
  const [open, setOpen] = useState<Open>(null);
  const [isBusy, setBusy] = useState(false);
  if (!may("write") || query.internal) return null;
  const { name } = query;

  const act = (work: () => Promise<unknown>, done: string): void => {
    setBusy(true);
    work()
      .then(() => notify(done))
      .catch(notifyError)
      .finally(() => {
        setBusy(false);
        onDone();
        refreshOverview();
      });
  };
  const setDesiredState = (state: DesiredState, done: string): void => act(() => api.put("/v1/queries/{name}/desired-state", { path: { name }, body: { state } }), done);
  return (
    <>
      {status.desired_state === "running" ? (
        <Button icon="pause" disabled={isBusy} onClick={() => setDesiredState("paused", `${name} pauses. Its state stays at hand.`)}>
          Pause
        </Button>
      ) : (
        <Button kind="primary" icon="play" disabled={isBusy} onClick={() => setDesiredState("running", `${name} goes on.`)}>
          Resume
        </Button>
      )}
      {status.desired_state !== "stopped" && (
        <Button disabled={isBusy} title="Frees its resources; state, position and results stay" onClick={() => setDesiredState("stopped", `${name} stops. State, position and results stay.`)}>
          Stop
        </Button>
      )}
      {status.desired_state === "running" && (
        <Button icon="restart" disabled={isBusy} onClick={() => act(() => api.post("/v1/queries/{name}/restart", { path: { name } }), `${name} is started again with its state.`)}>
          Restart
        </Button>
      )}
      <Button icon="fork" onClick={() => setOpen("fork")}>
        Fork
      </Button>
      <Button kind="danger" icon="trash" onClick={() => setOpen("delete")}>
        Delete
      </Button>
      {open === "fork" && <ForkDialog name={name} onClose={() => setOpen(null)} />}
      {open === "delete" && <DeleteDialog name={name} status={status} onClose={() => setOpen(null)} />}
    </>
  );
}

function ForkDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [fork, setFork] = useState(`${name}_fork`);
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const go = (): void => {
    setBusy(true);
    api
      .post("/v1/queries/{name}/fork", { path: { name }, body: { name: fork.trim() } })
      .then((made) => {
        refreshOverview();
        notify(`${made.name} goes on from what ${name} has committed.`);
        navigate(pathOf("/queries/:name", { name: made.name }));
      })
      .catch((failure: Error) => {
        setError(failure);
        setBusy(false);
      });
  };
  return (
    <Dialog
      title={`Fork ${name}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={isBusy || fork.trim() === ""} onClick={go}>
            Fork
          </Button>
        </>
      }
    >
      <p>A fork is a second query that goes on from what this one has committed: with its result, its state and its position. Change it, compare the two, and keep the better one.</p>
      <label class="field">
        <span>Name of the fork and of the relation that it writes</span>
        <input class="input" value={fork} autofocus onInput={(event) => setFork(event.currentTarget.value)} />
      </label>
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}

function DeleteDialog({ name, status, onClose }: { name: string; status: Status; onClose: () => void }) {
  const written = overview.value?.queries.find((query) => query.name === name)?.writes ?? null;
  const relation = written === null ? undefined : relationOf(written);
  const [keep, setKeep] = useState(false);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const result = useLive(
    async (signal) => (relation === undefined ? null : await api.get(RELATION_PATH[relation.kind], { path: { name: relation.name }, signal })),
    null,
    [relation?.name],
  );
  const readers = result.data?.read_by ?? [];
  const waiting = waitingOf(status);
  const go = (): void => {
    setBusy(true);
    api
      .delete("/v1/queries/{name}", { path: { name }, query: { state: keep ? "keep" : "discard" } })
      .then(() => {
        refreshOverview();
        notify(`${name} is deleted.`);
        navigate("/");
      })
      .catch((failure: Error) => {
        setError(failure);
        setBusy(false);
      });
  };
  const isBlocked = readers.length > 0 && !keep;
  return (
    <Dialog
      title={`Delete ${name}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" solid disabled={isBusy || isBlocked || typed !== name} onClick={go}>
            Delete
          </Button>
        </>
      }
    >
      {result.isLoading ? (
        <Skeleton lines={3} />
      ) : (
        <>
          <p>This goes for good:</p>
          <ul class="steps">
            <li>the query, its state and its position: if you create it again, it starts from the beginning</li>
            {waiting > 0 && <li>{plural(waiting, "record")} that {waiting === 1 ? "waits" : "wait"} inside and are in no result yet</li>}
            <li>the late records that it keeps, its events and launches</li>
            {relation !== undefined && !keep && (
              <li>
                the {relation.kind} <strong>{relation.name}</strong>
                {relation.appended !== null && `, into which it wrote ${count(relation.appended)} ${relation.kind === "table" ? "changes" : "records"}`}
              </li>
            )}
          </ul>
          {relation !== undefined && (
            <label class="row">
              <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
              <span>
                Keep the {relation.kind} {relation.name} for reading, as it is now
              </span>
            </label>
          )}
          {readers.length > 0 && (
            <Note tone="warn">
              <span>
                {relation?.name} is read by {readers.join(", ")}. {keep ? "They get nothing more of it." : "Delete them first, or keep it."}
              </span>
            </Note>
          )}
          <label class="field">
            <span>Type the name of the query to delete it</span>
            <input class="input" value={typed} autofocus autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        </>
      )}
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}
