/** Sending records: in parts, each with a key of its own, so that a part that is sent again is not appended twice. */
import { ApiError, send } from "~/api/client";
import type { AppendAnswer, Warning } from "~/api/types";
import type { Rec } from "./sample";

export interface RefusedRecord {
  /** Its place in all that was sent, from 0. */
  index: number;
  code: string;
  detail: string;
}

export interface Sent {
  sent: number;
  appended: number;
  rejected: number;
  refused: RefusedRecord[];
  warnings: Warning[];
}

const PART = 2_000;
const MOST_REFUSED = 200;
const TRIES = 4;

/**
 * Append records in their order.
 *
 * @param onPart is told after each part how far it is.
 * @throws ApiError where the rest cannot be sent; what `onPart` was told is done.
 */
export async function append(kind: "stream" | "table", name: string, records: Rec[], signal: AbortSignal, onPart: (sent: Sent) => void): Promise<Sent> {
  const done: Sent = { sent: 0, appended: 0, rejected: 0, refused: [], warnings: [] };
  for (let from = 0; from < records.length; from += PART) {
    const part = records.slice(from, from + PART);
    await sendPart(kind, name, part, from, signal, done);
    done.sent += part.length;
    onPart({ ...done });
  }
  return done;
}

async function sendPart(kind: "stream" | "table", name: string, part: Rec[], from: number, signal: AbortSignal, done: Sent): Promise<void> {
  const body = part.map((record) => JSON.stringify(record)).join("\n");
  const headers = { "idempotency-key": crypto.randomUUID() };
  for (let tries = 1; ; tries++) {
    try {
      const response = await send("POST", `/v1/${kind}s/{name}/records`, { path: { name }, body, type: "application/x-ndjson", headers, signal });
      const answer = (await response.json()) as AppendAnswer;
      done.appended += answer.appended;
      done.rejected += answer.rejected_count;
      keep(done, answer.rejected.map((each) => ({ ...each, index: from + each.index })));
      for (const warning of answer.warnings) if (!done.warnings.some((each) => each.code === warning.code)) done.warnings.push(warning);
      return;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === "records_rejected") {
        done.rejected += part.length;
        keep(done, error.problem.errors.map((fault) => ({ index: from + Number(fault.pointer.slice(1)), code: fault.code, detail: fault.detail })));
        return;
      }
      if (!error.problem.retryable || tries === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs ?? 500 * 2 ** tries));
    }
  }
}

function keep(done: Sent, refused: RefusedRecord[]): void {
  done.refused.push(...refused.slice(0, MOST_REFUSED - done.refused.length));
}
