/** Carrying statements out. A SELECT with EMIT is answered line by line as rows come; everything else at once. */
import { ApiError, send } from "~/api/client";
import type { Problem, StatementResult } from "~/api/types";

export interface Column {
  name: string;
  type: string;
}

export interface PushedRow {
  op: "upsert" | "delete";
  eventTimeMs: number;
  values: unknown[];
}

export interface Pushed {
  columns: Column[];
  /** The transient query behind it; null: it follows a relation. */
  query: string | null;
}

export interface Listener {
  /** A push query has begun. */
  begun: (pushed: Pushed) => void;
  /** Rows have come; several at once where they come fast. */
  rows: (rows: PushedRow[]) => void;
  /** A push query has ended by itself. */
  ended: (reason: string) => void;
}

const LINES = "application/x-ndjson";

/** Ask what the statements would do, and do nothing; throws ApiError with the places of what is wrong. */
export async function check(sql: string, signal: AbortSignal): Promise<StatementResult[]> {
  const response = await send("POST", "/v1/statements", { query: { validate: true }, body: { sql }, signal });
  return ((await response.json()) as { results: StatementResult[] }).results;
}

/** Carry statements out. Returns what became of them; null where it was a push query, whose rows went to the listener until it ended. */
export async function carryOut(sql: string, signal: AbortSignal, listener: Listener): Promise<StatementResult[] | null> {
  const response = await send("POST", "/v1/statements", { body: { sql }, headers: { accept: `application/json, ${LINES}` }, signal });
  if (!(response.headers.get("content-type") ?? "").startsWith(LINES)) {
    return ((await response.json()) as { results: StatementResult[] }).results;
  }
  await follow(response, listener);
  return null;
}

async function follow(response: Response, listener: Listener): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let hasEnded = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      text += value;
      const end = text.lastIndexOf("\n");
      if (end < 0) continue;
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 1);
      const rows: PushedRow[] = [];
      for (const line of lines) {
        if (line === "") continue;
        const message = JSON.parse(line) as Message;
        if (message.header !== undefined) listener.begun(message.header);
        else if (message.row !== undefined) {
          rows.push({ op: message.row.op, eventTimeMs: message.row.event_time_ms, values: message.row.values });
        } else {
          if (rows.length > 0) listener.rows(rows.splice(0));
          if (message.error !== undefined) throw new ApiError(problemOf(message.error));
          if (message.end !== undefined) {
            hasEnded = true;
            listener.ended(message.end.reason);
          }
        }
      }
      if (rows.length > 0) listener.rows(rows);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
  if (!hasEnded) listener.ended("interrupted");
}

interface Message {
  header?: Pushed;
  row?: { op: "upsert" | "delete"; event_time_ms: number; values: unknown[] };
  end?: { reason: string };
  error?: { code: string; detail: string };
}

function problemOf(error: { code: string; detail: string }): Problem {
  return {
    type: `/v1/errors/${error.code}`,
    title: "The query ended",
    status: 200,
    detail: error.detail,
    cure: "",
    instance: "/v1/statements",
    code: error.code as Problem["code"],
    retryable: false,
    request_id: "",
    errors: [],
  };
}
