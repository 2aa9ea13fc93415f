/** What keeps a screen current: polling that gives way under load, and the service's event streams. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, isAborted, send, type Options } from "./client";

export interface Live<T> {
  /** The newest answer; stays while later requests fail. */
  data: T | null;
  /** Why the newest request failed; null: it did not. */
  error: Error | null;
  isLoading: boolean;
  /** When the newest answer came. */
  at: number | null;
  /** Ask again now. */
  refresh: () => void;
}

const LONGEST_PAUSE_MS = 30_000;
/** A request that takes long is asked for seldom: at most so much of the time goes into it. */
const SHARE_OF_TIME = 0.2;

/**
 * Ask again and again, as long as the page is visible.
 *
 * @param ask what to ask; gets a signal that breaks the request off.
 * @param everyMs the pause between two requests; null: ask once.
 * @param dependencies as of `useEffect`: when one changes, the data is forgotten and asked for again.
 */
export function useLive<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number | null, dependencies: readonly unknown[]): Live<T> {
  const [state, setState] = useState<Omit<Live<T>, "refresh">>({ data: null, error: null, isLoading: true, at: null });
  const again = useRef<() => void>(() => undefined);
  const asking = useRef(ask);
  asking.current = ask;

  useEffect(() => {
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isUnderWay = false;
    let isWanted = false;
    let failures = 0;
    setState({ data: null, error: null, isLoading: true, at: null });

    const run = async (): Promise<void> => {
      clearTimeout(timer);
      if (isUnderWay) {
        isWanted = true;
        return;
      }
      isUnderWay = true;
      isWanted = false;
      const began = performance.now();
      let pause = everyMs;
      try {
        const data = await asking.current(ending.signal);
        if (ending.signal.aborted) return;
        failures = 0;
        setState({ data, error: null, isLoading: false, at: Date.now() });
      } catch (error) {
        if (ending.signal.aborted || isAborted(error)) return;
        failures += 1;
        setState((before) => ({ ...before, error: error as Error, isLoading: false }));
        const isWorthTrying = error instanceof ApiError ? error.problem.retryable : false;
        const backoff = Math.min((everyMs ?? 1_000) * 2 ** failures, LONGEST_PAUSE_MS);
        pause = isWorthTrying || everyMs !== null ? Math.max(backoff, (error as ApiError).retryAfterMs ?? 0) : null;
      } finally {
        isUnderWay = false;
      }
      if (isWanted) void run();
      else if (pause !== null && !document.hidden) timer = setTimeout(run, Math.max(pause, (performance.now() - began) / SHARE_OF_TIME));
    };
    const onVisible = (): void => {
      if (!document.hidden && everyMs !== null) void run();
    };
    again.current = () => void run();
    document.addEventListener("visibilitychange", onVisible);
    void run();
    return () => {
      ending.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [everyMs, ...dependencies]);

  const refresh = useCallback(() => again.current(), []);
  return { ...state, refresh };
}

export interface ServerEvent {
  event: string;
  data: string;
  id: string | null;
}

/** Read an event stream (SSE) once. `EventSource` cannot send a key, so the stream is read by `fetch`. */
export async function* events(path: string, options: Options = {}): AsyncGenerator<ServerEvent> {
  const headers = { ...options.headers, accept: "text/event-stream" };
  const response = await send("GET", path, { ...options, headers });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      let end: number;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const found = parsed(text.slice(0, end));
        text = text.slice(end + 2);
        if (found !== null) yield found;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parsed(block: string): ServerEvent | null {
  let event = "message";
  let id: string | null = null;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment: keeps the connection alive
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id") id = value;
  }
  return data.length > 0 || id !== null ? { event, id, data: data.join("\n") } : null;
}

export interface Follow {
  isConnected: boolean;
  error: Error | null;
}

/**
 * Follow an event stream and come back by itself with the last id, as long as the component is shown and `path` is not null.
 *
 * `reset` events are passed on like all others: what was gathered until then no longer counts.
 */
export function useEvents(path: string | null, options: Options, onEvent: (event: ServerEvent) => void, dependencies: readonly unknown[]): Follow {
  const [state, setState] = useState<Follow>({ isConnected: false, error: null });
  const told = useRef(onEvent);
  told.current = onEvent;
  useEffect(() => {
    if (path === null) {
      setState({ isConnected: false, error: null });
      return undefined;
    }
    const ending = new AbortController();
    void follow(path, options, ending.signal, (event) => told.current(event), setState);
    return () => ending.abort();
  }, [path, ...dependencies]);
  return state;
}

async function follow(
  path: string,
  options: Options,
  signal: AbortSignal,
  tell: (event: ServerEvent) => void,
  setState: (state: Follow) => void,
): Promise<void> {
  let last: string | null = null;
  let pause = 1_000;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = last ? { ...options.headers, "last-event-id": last } : { ...options.headers };
      for await (const event of events(path, { ...options, headers, signal })) {
        if (signal.aborted) return;
        setState({ isConnected: true, error: null });
        pause = 1_000;
        if (event.id !== null) last = event.id;
        tell(event);
      }
    } catch (error) {
      if (signal.aborted || isAborted(error)) return;
      setState({ isConnected: false, error: error as Error });
      if (error instanceof ApiError && !error.problem.retryable && error.status !== 0) return;
      pause = Math.max(Math.min(pause * 2, LONGEST_PAUSE_MS), error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
