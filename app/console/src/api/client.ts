/**
 * Requests to the service. Every failure is an `ApiError` with the problem that the service answered: its code, what is wrong, and the cure.
 *
 * Paths are given as in the OpenAPI document, with their parameters apart, so that nothing has to be escaped by hand:
 * `api.get("/v1/queries/{name}/status", { path: { name }, query: { tasks: true } })`. The types of answers follow from the path.
 */
import { key, lock, signOut } from "~/session";
import type { paths } from "./schema";
import type { Problem } from "./types";

type Method = "get" | "put" | "post" | "delete";
type PathsWith<M extends Method> = { [P in keyof paths]: paths[P] extends { [K in M]: { responses: object } } ? P : never }[keyof paths];
type Responses<P extends keyof paths, M extends Method> = paths[P] extends { [K in M]: { responses: infer R } } ? R : never;
type Body<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Succeeded<R> = R extends object ? { [S in keyof R]: S extends 200 | 201 | 202 ? Body<R[S]> : never }[keyof R] : never;
export type Answer<P extends keyof paths, M extends Method> = Succeeded<Responses<P, M>>;

export type Values = Record<string, string | number | boolean | null | undefined>;

export interface Options {
  /** Values of the parameters in the path. */
  path?: Record<string, string>;
  /** Parameters behind `?`; null and undefined are left out. */
  query?: Values;
  /** Sent as JSON. A `Blob` or a `string` is sent as it is, with `type`. */
  body?: unknown;
  /** Content type of a body that is not JSON. */
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export class ApiError extends Error {
  constructor(
    readonly problem: Problem,
    readonly retryAfterMs: number | null = null,
  ) {
    super(problem.detail);
    this.name = "ApiError";
  }

  get code(): string {
    return this.problem.code;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** Whether an error only says that its request was broken off. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function url(path: string, options: Options = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = options.path?.[name];
    if (value === undefined) throw new Error(`${path} needs a value for ${name}`);
    return encodeURIComponent(value);
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) if (value != null && value !== "") query.append(name, String(value));
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Send a request and return the response if it succeeded: for streams and bodies that are not JSON. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  const presented = key.peek();
  if (presented !== null) headers.set("authorization", `Bearer ${presented}`);
  let body: BodyInit | undefined;
  if (options.body !== undefined) {
    const isRaw = typeof options.body === "string" || options.body instanceof Blob;
    headers.set("content-type", options.type ?? "application/json");
    body = isRaw ? (options.body as BodyInit) : JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(url(path, options), { method, headers, body, signal: options.signal, cache: "no-store" });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError(unreachable(path));
  }
  if (response.ok) return response;
  const failure = new ApiError(await problemOf(response), retryAfterOf(response));
  if (response.status === 401 && presented === key.peek()) {
    if (presented === null) lock();
    else signOut(failure.problem.detail);
  }
  throw failure;
}

async function json<T>(method: string, path: string, options?: Options): Promise<T> {
  const response = await send(method, path, options);
  return (response.status === 204 || response.headers.get("content-length") === "0" ? undefined : await response.json()) as T;
}

export const api = {
  get: <P extends PathsWith<"get">>(path: P, options?: Options): Promise<Answer<P, "get">> => json("GET", path, options),
  put: <P extends PathsWith<"put">>(path: P, options?: Options): Promise<Answer<P, "put">> => json("PUT", path, options),
  post: <P extends PathsWith<"post">>(path: P, options?: Options): Promise<Answer<P, "post">> => json("POST", path, options),
  delete: <P extends PathsWith<"delete">>(path: P, options?: Options): Promise<void> => json("DELETE", path, options),
};

async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as Problem;
    if (typeof body.code === "string") return body;
  } catch {
    // Not ours: a proxy between this page and the service answered.
  }
  return {
    type: "about:blank",
    title: response.statusText || "Failed",
    status: response.status,
    detail: `The answer has the status ${response.status} and is not the service's own: something between this page and the service gave it.`,
    cure: "Look at the proxy before the service.",
    instance: new URL(response.url).pathname,
    code: "answer_of_a_proxy" as Problem["code"],
    retryable: response.status >= 500,
    request_id: response.headers.get("x-request-id") ?? "",
    errors: [],
  };
}

function unreachable(path: string): Problem {
  return {
    type: "about:blank",
    title: "No answer",
    status: 0,
    detail: "The service does not answer.",
    cure: "Is it running? The console tries again by itself.",
    instance: path,
    code: "no_answer" as Problem["code"],
    retryable: true,
    request_id: "",
    errors: [],
  };
}

function retryAfterOf(response: Response): number | null {
  const seconds = Number(response.headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : null;
}
