/** Changes as they come, gathered so that a fast stream does not draw the page for each of them. */
import { useEffect, useRef, useState } from "preact/hooks";
import { useEvents } from "~/api/live";

export interface Change {
  /** Rises with each change that came to this page. */
  number: number;
  op: "upsert" | "delete" | "append";
  partition: number | null;
  offset: number | null;
  part?: string;
  event_time_ms: number;
  key: Record<string, unknown>;
  row: Record<string, unknown> | null;
}

export interface Changing {
  /** The newest first, at most `most`. */
  changes: Change[];
  /** How many came since the page was opened. */
  total: number;
  /** Changes in the last second, about. */
  perSecond: number;
  isConnected: boolean;
  error: Error | null;
}

const DRAWN_EVERY_MS = 300;

/**
 * Follow what changes from now on.
 *
 * @param path of the changes; null: nothing is followed, and what came stays.
 */
export function useChanging(path: string | null, most: number, name: string): Changing {
  const [state, setState] = useState({ changes: [] as Change[], total: 0, perSecond: 0 });
  const waiting = useRef<Change[]>([]);
  const total = useRef(0);

  const { isConnected, error } = useEvents(
    path,
    { query: { from: "latest" }, path: { name } },
    (event) => {
      if (event.event === "reset") waiting.current = [];
      if (event.event !== "change") return;
      total.current += 1;
      waiting.current.push({ ...(JSON.parse(event.data) as Omit<Change, "number">), number: total.current });
      if (waiting.current.length > most) waiting.current.splice(0, waiting.current.length - most);
    },
    [name],
  );

  useEffect(() => {
    let counted = total.current;
    let at = performance.now();
    const timer = setInterval(() => {
      const came = waiting.current.splice(0);
      const now = performance.now();
      const rate = ((total.current - counted) * 1_000) / (now - at);
      counted = total.current;
      at = now;
      setState((before) => {
        if (came.length === 0 && before.perSecond === 0) return before;
        const smooth = before.perSecond * 0.6 + rate * 0.4;
        const changes = came.length === 0 ? before.changes : [...came.reverse(), ...before.changes].slice(0, most);
        return { changes, total: total.current, perSecond: smooth < 0.05 ? 0 : smooth };
      });
    }, DRAWN_EVERY_MS);
    return () => clearInterval(timer);
  }, [most]);

  return { ...state, isConnected, error };
}
