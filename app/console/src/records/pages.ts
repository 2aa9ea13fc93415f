/** Pages of an answer, fetched as they are looked at. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAborted } from "~/api/client";

export interface Page<T> {
  items: T[];
  next: string | null;
}

export interface Pages<T, P extends Page<T>> {
  items: T[];
  /** The newest page, with all that its answer says beside its items; null: none came yet. */
  head: P | null;
  error: Error | null;
  isLoading: boolean;
  /** Fetch the next page, if there is one and none is on its way. */
  more: () => void;
  /** Fetch from the first page on again; what is shown stays until it comes. */
  refresh: () => void;
}

interface State<T, P> {
  items: T[];
  head: P | null;
  error: Error | null;
  isLoading: boolean;
}

export function usePages<T, P extends Page<T>>(ask: (cursor: string | null, signal: AbortSignal) => Promise<P>, dependencies: readonly unknown[]): Pages<T, P> {
  const [state, setState] = useState<State<T, P>>({ items: [], head: null, error: null, isLoading: true });
  const asking = useRef(ask);
  asking.current = ask;
  const underWay = useRef<AbortController | null>(null);
  const now = useRef(state);
  now.current = state;

  const fetchPage = useCallback(async (cursor: string | null) => {
    underWay.current?.abort();
    const mine = new AbortController();
    underWay.current = mine;
    setState((before) => ({ ...before, isLoading: true }));
    try {
      const page = await asking.current(cursor, mine.signal);
      if (mine.signal.aborted) return;
      setState((before) => ({ items: cursor === null ? page.items : [...before.items, ...page.items], head: page, error: null, isLoading: false }));
    } catch (error) {
      if (mine.signal.aborted || isAborted(error)) return;
      setState((before) => ({ ...before, error: error as Error, isLoading: false }));
    }
  }, []);

  useEffect(() => {
    setState({ items: [], head: null, error: null, isLoading: true });
    void fetchPage(null);
    return () => underWay.current?.abort();
  }, dependencies);

  const more = useCallback(() => {
    const { head, isLoading, error } = now.current;
    if (!isLoading && error === null && head?.next != null) void fetchPage(head.next);
  }, []);
  const refresh = useCallback(() => void fetchPage(null), []);
  return { ...state, more, refresh };
}
