/** Asking the service what it would make of a source: nothing is registered. */
import { api, ApiError } from "~/api/client";
import { RELATION_PATH } from "~/api/paths";
import type { ProblemItem, RegisteredAnswer, Warning } from "~/api/types";
import { useAsked } from "./asking";
import { definitionOf, holdsChanges, inferringOf, type SourceDraft } from "./source";

const REST_MS = 350;
/** A broker or a directory is asked as well, so typing rests longer before. */
const REST_OUTSIDE_MS = 800;

export interface Judged {
  problems: ProblemItem[];
  warnings: Warning[];
  definition: unknown;
  sql: string | null;
}

async function ask(draft: SourceDraft, name: string, body: Record<string, unknown>, signal: AbortSignal): Promise<RegisteredAnswer> {
  return await api.put(RELATION_PATH[draft.kind], { path: { name }, query: { validate: true }, body, signal });
}

/** What an error says is wrong, each at its field. What lies outside and cannot be reached is said where it is named. */
export function problemsOf(error: ApiError, draft: SourceDraft): ProblemItem[] {
  const { problem } = error;
  if (problem.errors.length > 0) return problem.errors.map((fault) => ({ pointer: fault.pointer, code: fault.code as ProblemItem["code"], detail: fault.detail }));
  const { connector } = draft;
  const named = connector.type === "files" ? "/connector/path" : connector.connection === "" ? "/connector/bootstrap" : "/connector/connection";
  return [{ pointer: problem.code === "source_unavailable" && connector.type !== "log" ? named : "", code: problem.code as ProblemItem["code"], detail: problem.detail }];
}

/** Ask once typing has rested; null: not now. */
export function useJudged(draft: SourceDraft | null): { judged: Judged | null; isJudging: boolean } {
  const text = draft === null ? null : JSON.stringify([draft.kind, draft.name, definitionOf(draft)]);
  const { answer, isAsking } = useAsked(text, draft?.connector.type === "log" ? REST_MS : REST_OUTSIDE_MS, (signal) => judge(draft!, signal));
  return { judged: text === null ? null : answer, isJudging: isAsking };
}

async function judge(draft: SourceDraft, signal: AbortSignal): Promise<Judged> {
  try {
    const answer = await ask(draft, draft.name, definitionOf(draft), signal);
    return { problems: [], warnings: answer.warnings, definition: answer.definition, sql: answer.sql };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { problems: problemsOf(error, draft), warnings: [], definition: null, sql: null };
  }
}

/** A name for questions about a source that has none yet. */
const UNNAMED = "unnamed_source";

/**
 * Let the connector find the columns: what it names, its key, and what of the records is no column. A table whose records do not say its key
 * is asked for as a stream, which needs none: the key can be chosen once the columns are there.
 */
export async function findColumns(draft: SourceDraft, signal: AbortSignal): Promise<RegisteredAnswer> {
  const asked: SourceDraft = { ...draft, kind: holdsChanges(draft) ? "table" : "stream" };
  return await ask(asked, draft.name === "" ? UNNAMED : draft.name, inferringOf(draft), signal);
}
