/** Beside the editor: what there is, examples, and what was run. */
import { useState } from "preact/hooks";
import type { Relation } from "~/api/types";
import { Badge, Button, Empty, Skeleton } from "~/components/basics";
import { Segments } from "~/components/Tabs";
import { ago, span } from "~/format";
import { written } from "./completion";
import type { ExampleScript } from "./examples";
import type { Ran } from "./kept";

type Part = "examples" | "names" | "history";

interface Props {
  relations: Relation[] | null;
  examples: ExampleScript[];
  ran: Ran[];
  /** Puts a text into the editor. */
  onPut: (sql: string) => void;
  onForget: () => void;
}

export function Beside({ relations, examples, ran, onPut, onForget }: Props) {
  const [part, setPart] = useState<Part>(ran.length > 0 ? "history" : "examples");
  return (
    <aside class="panel sql-beside" aria-label="Help for writing">
      <header>
        <Segments<Part>
          label="Help"
          value={part}
          options={[
            ["examples", "Examples"],
            ["names", "Names"],
            ["history", "History"],
          ]}
          onChange={setPart}
        />
      </header>
      <div class="sql-list">
        {part === "examples" &&
          examples.map((each) => (
            <button key={each.title} type="button" class="sql-item" onClick={() => onPut(each.sql)}>
              <strong>{each.title}</strong>
              <span class="muted small">{each.about}</span>
            </button>
          ))}
        {part === "names" && (relations === null ? <Skeleton lines={4} /> : relations.length === 0 ? <Empty title="No streams, no tables" /> : relations.map((each) => <Names key={each.name} relation={each} onPut={onPut} />))}
        {part === "history" &&
          (ran.length === 0 ? (
            <Empty title="Nothing was run yet">
              <p>What you run is kept here, in this browser alone.</p>
            </Empty>
          ) : (
            <>
              {ran.map((each) => (
                <button key={each.sql} type="button" class="sql-item" onClick={() => onPut(each.sql)}>
                  <code class="sql-short">{each.sql}</code>
                  <span class="row small muted">
                    {each.outcome === "failed" && <Badge tone="bad">{each.note}</Badge>}
                    {each.outcome !== "failed" && each.note !== "" && <span class="ellipsis">{each.note}</span>}
                    <span class="nowrap">
                      {span(each.ms)} · {ago(new Date(each.at).toISOString())}
                    </span>
                  </span>
                </button>
              ))}
              <div style={{ padding: "6px 10px" }}>
                <Button small kind="quiet" icon="trash" onClick={onForget}>
                  Forget all
                </Button>
              </div>
            </>
          ))}
      </div>
    </aside>
  );
}

function Names({ relation, onPut }: { relation: Relation; onPut: (sql: string) => void }) {
  const isStream = relation.kind === "stream";
  const shown = Object.keys(relation.columns).filter((name) => !(relation.key.includes("window_start") && (name === "window_start" || name === "window_end")));
  const sql = `SELECT ${shown.map(written).join(", ")}\nFROM ${relation.name}${isStream ? "\nEMIT CHANGES" : "\nLIMIT 100"};`;
  return (
    <details class="sql-name">
      <summary>
        {relation.name} <span class="muted small">{relation.kind}</span>
      </summary>
      <ul>
        {Object.entries(relation.columns).map(([name, type]) => (
          <li key={name}>
            {name} <span class="muted small">{relation.key.includes(name) ? `${type} · key` : type}</span>
          </li>
        ))}
      </ul>
      <Button small onClick={() => onPut(sql)}>
        Select its columns
      </Button>
    </details>
  );
}
