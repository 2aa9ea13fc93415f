/** What a form makes, as SQL and as JSON: either can be sent, and means the same. */
import { useState } from "preact/hooks";
import { CopyButton, Panel } from "~/components/basics";
import { Code } from "~/components/Code";
import { Segments } from "~/components/Tabs";

export function Made({ sql, json, request, isStale }: { sql: string | null; json: unknown; request: string; isStale?: boolean }) {
  const [form, setForm] = useState<"sql" | "json">("sql");
  const text = form === "sql" ? (sql === null ? "-- The statement appears when nothing is missing." : sql) : JSON.stringify(json, null, 2);
  return (
    <Panel
      id="made"
      title="What this makes"
      hint={form === "sql" ? "POST /v1/statements" : request}
      actions={
        <>
          <Segments
            label="Show as"
            value={form}
            options={[
              ["sql", "SQL"],
              ["json", "JSON"],
            ]}
            onChange={setForm}
          />
          <CopyButton text={text} />
        </>
      }
    >
      <div class={isStale ? "new-stale" : undefined} aria-busy={isStale ? "true" : undefined}>
        <Code language={form} label={form === "sql" ? "Statement" : "Definition"} text={text} />
      </div>
    </Panel>
  );
}
