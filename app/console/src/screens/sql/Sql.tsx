/** SQL: an editor that knows what there is, and what comes of each statement. */
import type { EditorView } from "@codemirror/view";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ApiError, isAborted } from "~/api/client";
import { useLive } from "~/api/live";
import type { Functions, Relation } from "~/api/types";
import { Badge, Button, Panel } from "~/components/basics";
import { Page } from "~/components/Page";
import { plural } from "~/format";
import { refreshOverview } from "~/overview";
import { place, setQuery } from "~/router";
import { may } from "~/session";
import { Editor } from "~/editor/Editor";
import { examplesFor } from "./examples";
import { forgetHistory, history, keepScript, keptScript, remember, type Ran } from "./kept";
import { sqlExtensions } from "./language";
import { listRelations } from "~/records/listing";
import { Beside } from "./Beside";
import { Results, type Run } from "./Results";
import { carryOut, type PushedRow } from "./running";
import { statementAt } from "./splitting";
import "./sql.css";

const FIRST = "-- Ctrl+Enter runs the statement at the cursor.\nSHOW STREAMS;\nSHOW TABLES;\n";
/** Rows of a push query that stay in the page. */
const MOST_PUSHED = 5_000;
const DRAWN_EVERY_MS = 250;

export default function Sql() {
  const asked = place.value.query.get("sql");
  const [initial] = useState(() => asked ?? keptScript() ?? FIRST);
  const [run, setRun] = useState<Run | null>(null);
  const [ran, setRan] = useState<Ran[]>(history);
  const [faults, setFaults] = useState(0);
  const view = useRef<EditorView | null>(null);
  const ending = useRef<AbortController | null>(null);

  const relations = useLive<Relation[]>((signal) => listRelations(signal), 30_000, []);
  const functions = useLive<Functions>((signal) => api.get("/v1/functions", { signal }), null, []);
  const known = useRef({ relations: [] as Relation[], functions: null as Functions | null });
  known.current = { relations: relations.data ?? [], functions: functions.data };

  useEffect(() => {
    if (asked !== null) replaceText(view.current, asked);
  }, [asked]);
  useEffect(() => () => ending.current?.abort(), []);

  const changed = useCallback((text: string) => {
    keepScript(text);
    const linked = place.peek().query.get("sql");
    if (linked !== null && linked !== text) setQuery({ sql: null });
  }, []);

  const begin = useCallback(async (sql: string) => {
    if (sql.trim() === "") return;
    ending.current?.abort();
    const mine = new AbortController();
    ending.current = mine;
    const began = performance.now();
    const at = Date.now();
    const waiting: PushedRow[] = [];
    const base: Run = { sql, isRunning: true, results: null, pushed: null, error: null, ended: null, ms: null };
    let current = base;
    const show = (change: Partial<Run>): void => {
      if (ending.current !== mine) return;
      current = { ...current, ...change };
      setRun(current);
    };
    const flush = (): void => {
      if (waiting.length === 0 || current.pushed === null) return;
      const came = waiting.splice(0);
      const total = current.pushed.total + came.length;
      const rows = [...came.map((row, place) => ({ ...row, number: total - came.length + place + 1 })).reverse(), ...current.pushed.rows].slice(0, MOST_PUSHED);
      show({ pushed: { ...current.pushed, rows, total } });
    };
    const timer = setInterval(flush, DRAWN_EVERY_MS);
    setRun(base);
    let outcome: Ran["outcome"] = "done";
    let note = "";
    try {
      const results = await carryOut(sql, mine.signal, {
        begun: (header) => show({ pushed: { ...header, rows: [], total: 0 } }),
        rows: (rows) => {
          waiting.push(...rows);
        },
        ended: (reason) => show({ ended: reason }),
      });
      flush();
      show({ results });
      note = results === null ? plural(current.pushed?.total ?? 0, "row") : (results.at(-1)?.message ?? "");
      if (results?.some((each) => each.kind !== "rows") === true) {
        refreshOverview();
        relations.refresh();
      }
    } catch (error) {
      flush();
      if (isAborted(error)) {
        outcome = "stopped";
        note = plural(current.pushed?.total ?? 0, "row");
        show({ ended: "stopped" });
      } else {
        outcome = "failed";
        note = error instanceof ApiError ? error.problem.code : (error as Error).message;
        show({ error: error as Error });
      }
    } finally {
      clearInterval(timer);
      const ms = Math.round(performance.now() - began);
      show({ isRunning: false, ms });
      setRan(remember({ sql, at, ms, outcome, note }));
    }
  }, []);

  const runHere = useCallback(() => {
    const state = view.current?.state;
    if (state === undefined) return;
    const { from, to, empty, head } = state.selection.main;
    const text = state.doc.toString();
    void begin(empty ? (statementAt(text, head)?.text ?? "") : text.slice(from, to));
  }, []);
  const runAll = useCallback(() => void begin(view.current?.state.doc.toString() ?? ""), []);

  const extensions = useMemo(() => sqlExtensions({ known: () => known.current, run: runHere, runAll, onChecked: setFaults }), []);
  const put = (sql: string): void => {
    replaceText(view.current, sql);
    view.current?.focus();
  };
  const examples = useMemo(() => examplesFor(relations.data ?? []).filter((each) => !each.changes || may("write")), [relations.data]);

  return (
    <Page title="SQL">
      <div class="sql-screen">
        <div class="stack">
          <Panel flush>
            <div class="sql-editor">
              <Editor label="Statements of SQL" initial={initial} onChange={changed} extensions={extensions} hint="SELECT * FROM …" onView={(made) => (view.current = made)} lines={9} />
            </div>
            <div class="sql-bar">
              <Button kind="primary" icon="play" onClick={runHere} title="Ctrl+Enter">
                Run
              </Button>
              <Button onClick={runAll} title="Ctrl+Shift+Enter">
                Run all
              </Button>
              {run?.isRunning === true && (
                <Button icon="pause" onClick={() => ending.current?.abort()}>
                  Stop
                </Button>
              )}
              <span class="grow" />
              {faults > 0 && <Badge tone="bad">{plural(faults, "fault")}</Badge>}
              <span class="small muted sql-keys">
                <kbd>Ctrl Enter</kbd> runs the statement at the cursor · <kbd>Ctrl Space</kbd> completes
              </span>
            </div>
          </Panel>
          <Results run={run} />
        </div>
        <Beside
          relations={relations.data}
          examples={examples}
          ran={ran}
          onPut={put}
          onForget={() => {
            forgetHistory();
            setRan([]);
          }}
        />
      </div>
    </Page>
  );
}

function replaceText(view: EditorView | null, text: string): void {
  if (view !== null && view.state.doc.toString() !== text) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 } });
}
