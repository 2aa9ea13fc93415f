/** API keys: who may read, write and administer. A key's text is shown once, when it is made. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { ApiKeyAnswer } from "~/api/types";
import { Badge, Button, CopyButton, Empty, Note, Panel, Skeleton } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel } from "~/components/ErrorPanel";
import { notify, notifyError } from "~/components/toasts";
import { ago, moment, plural } from "~/format";

type Role = "read" | "write" | "admin";

export function Keys() {
  const found = useLive((signal) => api.get("/v1/api-keys", { query: { limit: 1_000 }, signal }), null, []);
  const [isNew, setNew] = useState(false);
  const [revoking, setRevoking] = useState<string | null>(null);
  if (found.data === null) return found.error === null ? <Skeleton /> : <ErrorPanel error={found.error} retry={found.refresh} />;
  const items = found.data.items;
  const revoke = async (name: string): Promise<void> => {
    setRevoking(null);
    try {
      await api.delete("/v1/api-keys/{name}", { path: { name } });
      notify(`${name} is revoked`);
      found.refresh();
    } catch (error) {
      notifyError(error);
    }
  };
  return (
    <>
      <Panel
        flush
        id="keys"
        title="API keys"
        hint={plural(items.filter((key) => stateOf(key) === "good").length, "key counts", "keys count")}
        actions={
          <Button small icon="add" kind="primary" onClick={() => setNew(true)}>
            Key
          </Button>
        }
      >
        {items.length === 0 ? (
          <Empty title="There is no key">
            <p>
              Where the service asks for keys, <code>slackwater keys create</code> makes the first one.
            </p>
          </Empty>
        ) : (
          <div class="body scroll-x">
            <table class="plain">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Begins with</th>
                  <th>Role</th>
                  <th>Sees</th>
                  <th>Last used</th>
                  <th>Until</th>
                  <th>
                    <span class="unseen">Revoke</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {items.map((key) => (
                  <tr key={`${key.name} ${key.prefix}`} class={stateOf(key) === "good" ? undefined : "muted"}>
                    <td>{key.name}</td>
                    <td>
                      <code>{key.prefix}</code>
                    </td>
                    <td>
                      <Badge tone={key.role === "admin" ? "warn" : "neutral"}>{key.role}</Badge>
                    </td>
                    <td>{key.scope === null ? "everything" : key.scope.join(", ")}</td>
                    <td class="nowrap">{key.last_used_at === null ? "never" : ago(key.last_used_at)}</td>
                    <td class="nowrap">{untilOf(key)}</td>
                    <td class="num">
                      {stateOf(key) === "good" && (
                        <Button small kind="quiet" onClick={() => setRevoking(key.name)}>
                          Revoke
                        </Button>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
      {isNew && <Making onClose={() => setNew(false)} onMade={found.refresh} />}
      {revoking !== null && (
        <Dialog
          title={`Revoke ${revoking}?`}
          onClose={() => setRevoking(null)}
          footer={
            <>
              <Button onClick={() => setRevoking(null)}>Keep it</Button>
              <Button kind="danger" solid onClick={() => void revoke(revoking)}>
                Revoke it
              </Button>
            </>
          }
        >
          <p>Its users are refused within a moment. You cannot undo this.</p>
        </Dialog>
      )}
    </>
  );
}

function stateOf(key: ApiKeyAnswer): "good" | "revoked" | "expired" {
  if (key.revoked_at !== null) return "revoked";
  return key.expires_at !== null && new Date(key.expires_at).getTime() < Date.now() ? "expired" : "good";
}

function untilOf(key: ApiKeyAnswer): string {
  const state = stateOf(key);
  if (state === "revoked") return `revoked ${moment(key.revoked_at)}`;
  if (state === "expired") return `expired ${moment(key.expires_at)}`;
  return key.expires_at === null ? "it is revoked" : moment(key.expires_at);
}

function Making({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("read");
  const [scope, setScope] = useState("");
  const [expires, setExpires] = useState("90d");
  const [error, setError] = useState<Error | null>(null);
  const [text, setText] = useState<string | null>(null);
  const make = async (): Promise<void> => {
    setError(null);
    const patterns = scope.split(/[\s,]+/).filter((each) => each !== "");
    try {
      const made = await api.post("/v1/api-keys", {
        body: { name, role, ...(patterns.length === 0 ? {} : { scope: patterns }), ...(expires.trim() === "" ? {} : { expires_in: expires.trim() }) },
      });
      setText(made.key);
      onMade();
    } catch (failure) {
      setError(failure as Error);
    }
  };
  if (text !== null)
    return (
      <Dialog title={`The key ${name}`} onClose={onClose} footer={<Button onClick={onClose}>I have it</Button>}>
        <Note tone="warn">
          <strong>Copy it now: it is not shown again</strong>
          <span>Only its digest is kept.</span>
        </Note>
        <div class="row spread">
          <code class="key-text">{text}</code>
          <CopyButton text={text} />
        </div>
      </Dialog>
    );
  return (
    <Dialog
      title="A new key"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={name.trim() === ""} onClick={() => void make()}>
            Make it
          </Button>
        </>
      }
    >
      <label class="field">
        <span>Name: who will use it</span>
        <input class="input" value={name} placeholder="dashboard" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Role</span>
        <select class="input" value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
          <option value="read">read: looks at everything it sees</option>
          <option value="write">write: also sources, records and queries</option>
          <option value="admin">admin: also keys, connections, settings</option>
        </select>
      </label>
      {role !== "admin" && (
        <label class="field">
          <span>Names that it sees, such as orders* prices; empty: all</span>
          <input class="input mono" value={scope} placeholder="all" spellcheck={false} onInput={(event) => setScope(event.currentTarget.value)} />
        </label>
      )}
      <label class="field">
        <span>Good for, such as 90d; empty: until it is revoked</span>
        <input class="input" value={expires} placeholder="until it is revoked" onInput={(event) => setExpires(event.currentTarget.value)} />
      </label>
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}
