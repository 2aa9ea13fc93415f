/** Connections: where brokers, registries, buckets and databases are. Secrets go in here and never come out. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import type { CheckAnswer, ConnectionAnswer } from "~/api/types";
import { Badge, Button, Empty, Note, Panel, Skeleton } from "~/components/basics";
import { Code } from "~/components/Code";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { notify } from "~/components/toasts";
import { moment, plural, span, words } from "~/format";

export function Connections({ isAdmin }: { isAdmin: boolean }) {
  const found = useLive((signal) => api.get("/v1/connections", { query: { limit: 1_000 }, signal }), null, []);
  const [isNew, setNew] = useState(false);
  if (found.data === null) return found.error === null ? <Skeleton /> : <ErrorPanel error={found.error} retry={found.refresh} />;
  const items = found.data.items;
  return (
    <>
      {items.length === 0 ? (
        <Panel flush>
          <Empty title="There is no connection" icon="system">
            <p>A connection holds how a Kafka broker, a schema registry, a bucket or a Postgres database is reached. Sources and results name it.</p>
            {isAdmin && (
              <Button kind="primary" onClick={() => setNew(true)}>
                Make a connection
              </Button>
            )}
          </Empty>
        </Panel>
      ) : (
        <>
          <div class="row spread wrap">
            <span class="muted">{plural(items.length, "connection")}</span>
            {isAdmin && (
              <Button kind="primary" icon="add" onClick={() => setNew(true)}>
                Connection
              </Button>
            )}
          </div>
          {items.map((item) => (
            <One key={item.name} item={item} isAdmin={isAdmin} onChanged={found.refresh} />
          ))}
        </>
      )}
      {isNew && (
        <Writing
          former={null}
          onClose={() => setNew(false)}
          onWritten={() => {
            setNew(false);
            found.refresh();
          }}
        />
      )}
    </>
  );
}

function One({ item, isAdmin, onChanged }: { item: ConnectionAnswer; isAdmin: boolean; onChanged: () => void }) {
  const [checked, setChecked] = useState<CheckAnswer | null>(null);
  const [isChecking, setChecking] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [isAsked, setAsked] = useState(false);
  const [isReplaced, setReplaced] = useState(false);
  const check = async (): Promise<void> => {
    setChecking(true);
    setError(null);
    try {
      setChecked(await api.post("/v1/connections/{name}/check", { path: { name: item.name } }));
    } catch (failure) {
      setError(failure as Error);
    } finally {
      setChecking(false);
    }
  };
  const remove = async (): Promise<void> => {
    setAsked(false);
    try {
      await api.delete("/v1/connections/{name}", { path: { name: item.name } });
      notify(`${item.name} is deleted`);
      onChanged();
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <Panel
      id={`connection-${item.name}`}
      title={
        <span class="row">
          {item.name} <Badge>{item.type}</Badge>
        </span>
      }
      hint={`Changed ${moment(item.updated_at)}, version ${item.version}`}
      actions={
        isAdmin && (
          <>
            <Button small onClick={() => void check()} disabled={isChecking}>
              {isChecking ? "Trying …" : "Try it"}
            </Button>
            <Button small aria-label={`Replace ${item.name}`} onClick={() => setReplaced(true)}>
              Replace
            </Button>
            <Button small kind="quiet" icon="trash" aria-label={`Delete ${item.name}`} onClick={() => setAsked(true)} />
          </>
        )
      }
    >
      <div class="stack">
        {checked !== null && (
          <Note tone={checked.outcome === "reached" ? "good" : "bad"}>
            <strong>{checked.outcome === "reached" ? `Reached in ${span(checked.took_ms)}` : `Not reached: ${words(checked.reason ?? "")}`}</strong>
            <span>{plain(checked.detail)}</span>
          </Note>
        )}
        {error !== null && <ErrorPanel error={error} />}
        <Code language="json" label={`Definition of ${item.name}`} text={JSON.stringify(item.definition, null, 2)} />
      </div>
      {isReplaced && (
        <Writing
          former={item}
          onClose={() => setReplaced(false)}
          onWritten={() => {
            setReplaced(false);
            setChecked(null);
            onChanged();
          }}
        />
      )}
      {isAsked && (
        <Dialog
          title={`Delete ${item.name}?`}
          onClose={() => setAsked(false)}
          footer={
            <>
              <Button onClick={() => setAsked(false)}>Keep it</Button>
              <Button kind="danger" solid onClick={() => void remove()}>
                Delete it with its secrets
              </Button>
            </>
          }
        >
          <p>What it holds is gone for good. It is refused while a source or a query names it.</p>
        </Dialog>
      )}
    </Panel>
  );
}

const TEMPLATES: Record<string, unknown> = {
  kafka: { type: "kafka", bootstrap: "broker-1.example.com:9093", tls: {}, sasl: { mechanism: "SCRAM-SHA-512", username: "slackwater", password: "env:SLACKWATER_SECRET_ORDERS" } },
  registry: { type: "registry", urls: ["https://registry.example.com"], username: "slackwater", password: "env:SLACKWATER_SECRET_REGISTRY" },
  s3: { type: "s3", bucket: "lake", region: "eu-central-1", access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "env:SLACKWATER_SECRET_LAKE" },
  postgres: { type: "postgres", host: "db.example.com", database: "shop", username: "slackwater", password: "env:SLACKWATER_SECRET_SHOP", tls: {} },
};

/** Return a definition as it is shown, to write over: where a secret is set, nothing stands, for it is never shown. */
function withoutSecrets(shown: unknown): unknown {
  if (Array.isArray(shown)) return shown.map(withoutSecrets);
  if (typeof shown !== "object" || shown === null) return shown;
  if ("set" in shown) return "";
  return Object.fromEntries(Object.entries(shown).map(([name, inner]) => [name, withoutSecrets(inner)]));
}

/** Make a connection, or replace one: as a whole, with all of its secrets. */
function Writing({ former, onClose, onWritten }: { former: ConnectionAnswer | null; onClose: () => void; onWritten: () => void }) {
  const [name, setName] = useState(former?.name ?? "");
  const [kind, setKind] = useState<string>(former?.type ?? "kafka");
  const [text, setText] = useState(JSON.stringify(former === null ? TEMPLATES.kafka : withoutSecrets(former.definition), null, 2));
  const [error, setError] = useState<Error | null>(null);
  const write = async (): Promise<void> => {
    setError(null);
    let definition: unknown;
    try {
      definition = JSON.parse(text);
    } catch (failure) {
      setError(new Error(`The definition is not JSON: ${(failure as Error).message}`));
      return;
    }
    try {
      const condition: Record<string, string> = former === null ? { "if-none-match": "*" } : { "if-match": `"${former.version}"` };
      await api.put("/v1/connections/{name}", { path: { name }, body: definition, headers: { ...condition, "idempotency-key": crypto.randomUUID() } });
      notify(`${name} is ${former === null ? "kept" : "replaced"}. Nothing was connected to yet: try it.`);
      onWritten();
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <Dialog
      wide
      title={former === null ? "A new connection" : `Replace ${former.name}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={name.trim() === ""} onClick={() => void write()}>
            {former === null ? "Keep it" : "Replace it"}
          </Button>
        </>
      }
    >
      {former === null ? (
        <>
          <label class="field">
            <span>Name</span>
            <input class="input" value={name} placeholder="orders-broker" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
          <label class="field">
            <span>Kind</span>
            <select
              class="input"
              value={kind}
              onChange={(event) => {
                setKind(event.currentTarget.value);
                setText(JSON.stringify(TEMPLATES[event.currentTarget.value], null, 2));
              }}
            >
              <option value="kafka">Kafka brokers</option>
              <option value="registry">Schema registry</option>
              <option value="s3">Bucket (S3)</option>
              <option value="postgres">Postgres database</option>
            </select>
          </label>
        </>
      ) : (
        <p>
          Enter all secrets again, also those that stay the same: a stored secret must not go to another host. They are empty here because they are never shown.
        </p>
      )}
      <label class="field">
        <span>Definition</span>
        <textarea class="input mono" rows={12} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p class="small muted">
        A secret is a value, which is kept encrypted and never shown again, or <code>env:NAME</code> or <code>file:PATH</code>, which the process reads that connects.
      </p>
      {error !== null && <ErrorPanel error={error} />}
    </Dialog>
  );
}
