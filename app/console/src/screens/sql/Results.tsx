/** What came of statements: rows as a grid or a chart, sentences for what was done, faults with their places. */
import { useState } from "preact/hooks";
import type { StatementResult, StatementState } from "~/api/types";
import { ApiError } from "~/api/client";
import { Badge, Button, CopyButton, Empty, Facts, Note, Panel } from "~/components/basics";
import { Dialog } from "~/components/Dialog";
import { ErrorPanel, plain } from "~/components/ErrorPanel";
import { QueryLink } from "~/components/links";
import { Segments } from "~/components/Tabs";
import { count, moment, plural, span } from "~/format";
import { Cell, INSTANT } from "~/records/cells";
import { RowGrid, type GridRow } from "~/records/RowGrid";
import { Link } from "~/router";
import { screenFor } from "~/screens/registry";
import { Chart } from "./Chart";
import { isTime, plotable } from "./plotting";
import type { Column, Pushed, PushedRow } from "./running";

export interface NumberedRow extends PushedRow {
  number: number;
}

/** One go of the button. */
export interface Run {
  sql: string;
  isRunning: boolean;
  results: StatementResult[] | null;
  /** Of a push query: what came, the newest first. */
  pushed: (Pushed & { rows: NumberedRow[]; total: number }) | null;
  error: Error | null;
  /** Why a push query ended. */
  ended: string | null;
  ms: number | null;
}

const ENDS: Record<string, string> = { limit: "its LIMIT is reached", stopping: "the service stops", stopped: "you stopped it", interrupted: "the connection broke off" };

export function Results({ run }: { run: Run | null }) {
  if (run === null)
    return (
      <Panel flush>
        <Empty title="Results appear here" icon="sql">
          <p>A SELECT without EMIT answers once. With EMIT CHANGES it goes on until you stop it. CREATE … AS makes a query that stays.</p>
        </Empty>
      </Panel>
    );
  return (
    <div class="stack" aria-live="polite">
      {run.error !== null && (run.error instanceof ApiError ? <Faults error={run.error} /> : <ErrorPanel error={run.error} />)}
      {run.error instanceof ApiError && <States states={run.error.problem.statements ?? []} />}
      {run.pushed !== null && <PushedRows run={run} pushed={run.pushed} />}
      {run.results?.map((result, at) => <One key={at} result={result} ms={run.results!.length === 1 ? run.ms : null} />)}
      {run.isRunning && run.pushed === null && (
        <Note>
          <span>Running …</span>
        </Note>
      )}
    </div>
  );
}

function Faults({ error }: { error: ApiError }) {
  const placed = error.problem.errors.filter((fault) => fault.place != null);
  if (placed.length === 0) return <ErrorPanel error={error} />;
  return (
    <Note tone="bad">
      {placed.map((fault, at) => (
        <div key={at}>
          <strong>{plain(fault.detail.replace(/^line \d+, column \d+: /, ""))}</strong> <span class="small muted">line {fault.place!.line}, column {fault.place!.column}</span>
          <pre class="code">{fault.place!.excerpt}</pre>
        </div>
      ))}
      {error.problem.cure !== "" && <span class="cure">{plain(error.problem.cure)}</span>}
      <span class="small muted">
        <a href={error.problem.type}>{error.problem.code}</a>
      </span>
    </Note>
  );
}

const STATES: Record<StatementState["state"], { words: string; tone: "good" | "bad" | undefined }> = {
  done: { words: "done", tone: "good" },
  failed: { words: "failed", tone: "bad" },
  not_tried: { words: "not tried", tone: undefined },
};

/** Of a script that failed half-way: what became of each statement. */
function States({ states }: { states: StatementState[] }) {
  if (states.length === 0) return null;
  return (
    <Panel title="What became of each statement">
      <div class="stack" role="list">
        {states.map((each, at) => (
          <div key={at} class="row wrap" role="listitem">
            <Badge tone={STATES[each.state].tone}>{STATES[each.state].words}</Badge>
            <span class="small muted">line {each.line}</span>
            <span>{each.message == null ? <code>{short(each.statement)}</code> : plain(sentence(each.message))}</span>
          </div>
        ))}
      </div>
    </Panel>
  );
}

function One({ result, ms }: { result: StatementResult; ms: number | null }) {
  if (result.kind === "rows" && result.columns != null) {
    const rows = (result.rows ?? []).map((values, at) => ({ id: String(at), values }));
    return <Rows title={result.message} hint={[ms === null ? null : span(ms), short(result.statement)].filter(Boolean).join(" · ")} columns={result.columns} rows={rows} />;
  }
  return (
    <Note tone="good">
      <strong>{plain(sentence(result.message))}</strong>
      <span class="row wrap">
        {result.query != null && (
          <span>
            query <QueryLink name={result.query} />
          </span>
        )}
        {result.relation != null && <Relation name={result.relation} definition={result.definition ?? null} statement={result.statement} />}
      </span>
      {result.notes.map((note) => (
        <span key={note} class="small muted">
          {plain(note)}
        </span>
      ))}
      {result.warnings.map((warning) => (
        <span key={warning.code + warning.pointer}>
          <Badge tone="warn">surprise</Badge> {plain(warning.detail)} <span class="cure">{plain(warning.cure)}</span>
        </span>
      ))}
    </Note>
  );
}

function Relation({ name, statement }: { name: string; definition: unknown; statement: string }) {
  const kind = /\bTABLE\b/i.test(statement.slice(0, 60)) ? "table" : "stream";
  const to = `/${kind}s/${encodeURIComponent(name)}`;
  if (/^\s*DROP\b/i.test(statement) || screenFor(to) === null) return null;
  return (
    <span>
      {kind} <Link to={to}>{name}</Link>
    </span>
  );
}

function PushedRows({ run, pushed }: { run: Run; pushed: NonNullable<Run["pushed"]> }) {
  const columns: Column[] = [{ name: "event time", type: "string" }, ...pushed.columns];
  const rows: GridRow[] = pushed.rows.map((row) => ({
    id: String(row.number),
    values: [moment(row.eventTimeMs), ...row.values],
    tone: row.op === "delete" ? "gone" : run.isRunning && row.number > pushed.total - 40 ? "new" : undefined,
  }));
  const state = run.isRunning ? (
    <Badge tone="good" dot moving>
      following
    </Badge>
  ) : (
    <Badge>{ENDS[run.ended ?? ""] ?? "ended"}</Badge>
  );
  return (
    <Rows
      title={
        <span class="row">
          {plural(pushed.total, "row")} {state}
        </span>
      }
      hint={`${pushed.total > rows.length ? `the newest ${count(rows.length)} are here · ` : ""}${short(run.sql)}${pushed.query === null ? "" : " · by a query of its own, which ends with this one"}`}
      columns={columns}
      rows={rows}
      waits={run.isRunning ? "Rows appear here as they come." : "No row came."}
    />
  );
}

function Rows({ title, hint, columns, rows, waits }: { title: preact.ComponentChildren; hint: string; columns: Column[]; rows: GridRow[]; waits?: string }) {
  const [form, setForm] = useState<"grid" | "chart">("grid");
  const [chosen, setChosen] = useState<GridRow | null>(null);
  const values = rows.map((row) => [...row.values]);
  const can = plotable(columns, values);
  const isPlotable = rows.length > 1 && can.values.length > 0 && can.bottoms.length > 0;
  return (
    <Panel
      flush
      title={title}
      hint={<span class="sql-hint">{hint}</span>}
      actions={
        <>
          {isPlotable && (
            <Segments
              label="Show as"
              value={form}
              options={[
                ["grid", "Grid"],
                ["chart", "Chart"],
              ]}
              onChange={setForm}
            />
          )}
          {rows.length > 0 && <CopyButton label="Copy CSV" text={csv(columns, rows)} />}
          {rows.length > 0 && (
            <Button small kind="quiet" onClick={() => download(csv(columns, rows))}>
              Save
            </Button>
          )}
        </>
      }
    >
      {rows.length === 0 ? (
        <Empty title={waits ?? "No rows"} />
      ) : form === "chart" && isPlotable ? (
        <Chart columns={columns} rows={values} can={can} />
      ) : (
        <RowGrid label="Rows" columns={columns.map((column) => (column.type === "bigint" && isTime(column) ? { ...column, type: INSTANT } : column))} rows={rows} onChoose={setChosen} />
      )}
      {chosen !== null && (
        <Dialog title="Row" onClose={() => setChosen(null)} footer={<Button onClick={() => setChosen(null)}>Close</Button>}>
          <Facts items={columns.map((column, at) => [column.name, <Cell key={column.name} value={chosen.values[at]} type={column.type} />])} />
        </Dialog>
      )}
    </Panel>
  );
}

function short(sql: string): string {
  const line = sql.replace(/\s+/g, " ").trim();
  return line.length > 90 ? `${line.slice(0, 89)}…` : line;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function csv(columns: Column[], rows: GridRow[]): string {
  const quoted = (value: unknown): string => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map((column) => quoted(column.name)), ...rows.map((row) => row.values.map(quoted))].map((cells) => cells.join(",")).join("\n");
}

function download(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "slackwater.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
