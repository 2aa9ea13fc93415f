/** The definition as SQL and as JSON side by side, and its plan as a picture with what each operator counts. */
import { useState } from "preact/hooks";
import type { OneQuery, Status } from "~/api/types";
import { CopyButton, Panel } from "~/components/basics";
import { brokenSql, Code } from "~/components/Code";
import { Segments } from "~/components/Tabs";
import { moment } from "~/format";
import { Link } from "~/router";
import { may } from "~/session";
import { Plan } from "./Plan";

export function Definition({ query, status }: { query: OneQuery; status: Status }) {
  const [isWritten, setWritten] = useState(query.statement !== null);
  const sql = isWritten && query.statement !== null ? query.statement : brokenSql(query.sql);
  const json = JSON.stringify(withoutAbsent(query.definition), null, 2);
  return (
    <>
      <Plan query={query} status={status} />
      <div class="halves">
        <Panel
          id="sql"
          title="SQL"
          hint={query.statement !== null && isWritten ? "As it was written" : "The statement that the definition stands for"}
          actions={
            <>
              {query.statement !== null && <Segments label="Which statement" options={[["written", "As written"], ["whole", "In full"]] as const} value={isWritten ? "written" : "whole"} onChange={(value) => setWritten(value === "written")} />}
              {may("write") && !query.internal && (
                <Link class="button small" to={`/sql?sql=${encodeURIComponent(replacing(query.sql))}`} title="As a statement that replaces it: an edit in place keeps the state, and what needs new state is refused until you say so">
                  Edit in SQL
                </Link>
              )}
              <CopyButton text={sql} />
            </>
          }
        >
          <Code text={sql} language="sql" label="The definition as SQL" />
        </Panel>
        <Panel id="json" title="JSON" hint={`Generation ${query.generation}, last written ${moment(query.updated_at)}`} actions={<CopyButton text={json} />}>
          <Code text={json} language="json" label="The definition as JSON" />
        </Panel>
      </div>
    </>
  );
}

/** The statement that edits a query: whole, so that it means the same whatever is SET where it is run. */
function replacing(sql: string): string {
  return `${brokenSql(sql.replace(/^CREATE /, "CREATE OR REPLACE "))};`;
}

/** Leave out what is null: a definition spells out every default, and most of them are absence. */
export function withoutAbsent(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutAbsent);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, inner]) => inner !== null)
      .map(([name, inner]) => [name, withoutAbsent(inner)]),
  );
}
