/** What a relation is: columns, where records come from, who writes and reads it; and its end. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { RELATION_PATH } from "~/api/paths";
import type { Relation } from "~/api/types";
import { Badge, Button, CopyButton, Facts, Panel } from "~/components/basics";
import { Code } from "~/components/Code";
import { Dialog } from "~/components/Dialog";
import { QueryLink } from "~/components/links";
import { ErrorPanel } from "~/components/ErrorPanel";
import { notify } from "~/components/toasts";
import { count, moment, plural } from "~/format";
import { navigate } from "~/router";
import { may } from "~/session";
import { refreshOverview } from "~/overview";

type Definition = Record<string, unknown> & { event_time?: string | null; connector?: { type?: string }; versioned?: { history_retention?: string } | null };

export function About({ relation }: { relation: Relation }) {
  const definition = relation.definition as Definition | null;
  const readers = readersOf(relation);
  const held = (relation.partitions ?? []).reduce((sum, part) => sum + part.next_offset - part.start_offset, 0);
  return (
    <div class="columns">
      <Panel id="columns" title="Columns" hint={plural(Object.keys(relation.columns).length, "column")}>
        <table class="plain">
          <thead>
            <tr>
              <th>Name</th>
              <th>Type</th>
              <th>Role</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(relation.columns).map(([name, type]) => (
              <tr key={name}>
                <td>{name}</td>
                <td>
                  <code>{type}</code>
                </td>
                <td>
                  <span class="row wrap">
                    {relation.key.includes(name) && <Badge>key</Badge>}
                    {definition?.event_time === name && <Badge tone="water">event time</Badge>}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Panel>
      <div class="stack">
        <Panel id="facts" title="What it is">
          <Facts
            items={[
              ["Made by", relation.produced_by === null ? (relation.origin === "source" ? "you: it is a source" : "a query that is gone") : <QueryLink name={relation.produced_by} />],
              ["Read by", readers.length === 0 ? "no query" : <Names names={readers} />],
              ...(relation.parts.length > 0 ? ([["Also has the records of", relation.parts.join(", ")]] as [string, string][]) : []),
              ["Event time", definition === null ? "of its query" : (definition.event_time ?? "the time of arrival")],
              ...(definition?.versioned ? ([["Keeps versions for", definition.versioned.history_retention ?? ""]] as [string, string][]) : []),
              ["Records in the log", relation.partitions === null ? "kept elsewhere" : `${count(held)} in ${plural(relation.partitions.length, "partition")}`],
              ["Registered", moment(relation.created_at)],
              ["Changed", `${moment(relation.updated_at)}, version ${relation.version}`],
            ]}
          />
        </Panel>
        {definition !== null && (
          <Panel id="definition" title="Definition" hint="As stored, every default spelled out" actions={<CopyButton text={JSON.stringify(definition, null, 2)} />}>
            <Code language="json" label="Definition" text={JSON.stringify(definition, null, 2)} />
          </Panel>
        )}
        {may("write") && relation.produced_by === null && <Removal relation={relation} />}
      </div>
    </div>
  );
}

/** Queries that users made: the one that keeps the rows of a source goes with it. */
function readersOf(relation: Relation): string[] {
  return relation.read_by.filter((name) => name !== `materialize:${relation.name}`);
}

function Names({ names }: { names: string[] }) {
  return (
    <span class="row wrap">
      {names.map((name) => (
        <QueryLink key={name} name={name} />
      ))}
    </span>
  );
}

function Removal({ relation }: { relation: Relation }) {
  const [isAsked, setAsked] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const remove = async (): Promise<void> => {
    try {
      await api.delete(RELATION_PATH[relation.kind], { path: { name: relation.name } });
      notify(`${relation.name} is deleted`);
      refreshOverview();
      navigate("/relations");
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const isRead = readersOf(relation).length > 0;
  return (
    <div>
      <Button kind="danger" icon="trash" disabled={isRead} title={isRead ? "Queries read it: delete them first" : undefined} onClick={() => setAsked(true)}>
        Delete {relation.name}
      </Button>
      {isAsked && (
        <Dialog
          title={`Delete ${relation.name}?`}
          onClose={() => setAsked(false)}
          footer={
            <>
              <Button onClick={() => setAsked(false)}>Keep it</Button>
              <Button kind="danger" solid onClick={() => void remove()}>
                Delete it with its records
              </Button>
            </>
          }
        >
          <p>Its records, its rejects and its definition go. This cannot be undone.</p>
          {error !== null && <ErrorPanel error={error} />}
        </Dialog>
      )}
    </div>
  );
}
