/** The columns of a source: names, types, which are the key, and what the sample has there. */
import type { ProblemItem } from "~/api/types";
import { Button, Empty, Panel } from "~/components/basics";
import { Icon } from "~/components/icons";
import { plural } from "~/format";
import { textOf } from "~/records/cells";
import { Faults } from "./fields";
import type { ColumnDraft, ConnectorType } from "./source";

const TYPES = ["string", "int", "bigint", "double", "boolean", "timestamp", "date", "time", "decimal(18,2)", "bytes", "array<string>", "map<string,string>"];

interface Props {
  columns: ColumnDraft[];
  from: ConnectorType;
  examples: Record<string, unknown>;
  problems: ProblemItem[];
  onChange: (columns: ColumnDraft[]) => void;
}

export function SourceColumns({ columns, from, examples, problems, onChange }: Props) {
  const change = (at: number, part: Partial<ColumnDraft>): void => onChange(columns.map((column, place) => (place === at ? { ...column, ...part } : column)));
  const hasExamples = Object.keys(examples).length > 0;
  const wrong = new Set(problems.map((problem) => problem.pointer));
  return (
    <Panel
      flush
      id="columns"
      title="Columns"
      hint={columns.length === 0 ? undefined : plural(columns.length, "column")}
      actions={
        <Button small icon="add" onClick={() => onChange([...columns, { name: "", type: "string", isKey: false }])}>
          Column
        </Button>
      }
    >
      {columns.length === 0 ? (
        <Empty title="No columns yet">
          <p>{from === "log" ? "Paste some records above, or add columns one by one." : "Let them be found above, or add them one by one."}</p>
        </Empty>
      ) : (
        <div class="body scroll-x">
          <table class="plain new-columns">
            <thead>
              <tr>
                <th>Name</th>
                <th>Type</th>
                <th>Key</th>
                {hasExamples && <th>In the sample</th>}
                <th>
                  <span class="unseen">Delete</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {columns.map((column, at) => (
                <tr key={at}>
                  <td>
                    <input class="input" aria-label={`Name of column ${at + 1}`} value={column.name} spellcheck={false} onInput={(event) => change(at, { name: event.currentTarget.value })} />
                  </td>
                  <td>
                    <input
                      class="input mono"
                      aria-label={`Type of ${column.name || `column ${at + 1}`}`}
                      aria-invalid={wrong.has(`/columns/${column.name}`) ? "true" : undefined}
                      list="column-types"
                      value={column.type}
                      spellcheck={false}
                      onInput={(event) => change(at, { type: event.currentTarget.value })}
                    />
                  </td>
                  <td>
                    <input type="checkbox" aria-label={`${column.name || `Column ${at + 1}`} is part of the key`} checked={column.isKey} onChange={(event) => change(at, { isKey: event.currentTarget.checked })} />
                  </td>
                  {hasExamples && <td class="muted ellipsis new-example">{column.name in examples ? textOf(examples[column.name]) : ""}</td>}
                  <td>
                    <button type="button" class="button quiet small icon" aria-label={`Take ${column.name || `column ${at + 1}`} away`} onClick={() => onChange(columns.filter((_, place) => place !== at))}>
                      <Icon name="close" size={14} />
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <datalist id="column-types">
            {TYPES.map((type) => (
              <option key={type} value={type} />
            ))}
          </datalist>
        </div>
      )}
      {problems.length > 0 && (
        <div class="new-faults">
          <Faults problems={problems} />
        </div>
      )}
    </Panel>
  );
}
