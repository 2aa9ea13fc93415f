/** Asking the service about what is typed, once typing has rested. */
import { useEffect, useState } from "preact/hooks";
import { isAborted } from "~/api/client";

/**
 * Ask about a text; null: not now. The last answer stays until the next one is there.
 *
 * @param text What is asked about: an equal text is not asked about again.
 * @param restMs How long typing must have rested.
 * @param ask Gives the answer, also where the service refuses; it fails only where the question was broken off.
 */
export function useAsked<T>(text: string | null, restMs: number, ask: (signal: AbortSignal) => Promise<T>): { answer: T | null; isAsking: boolean } {
  const [state, setState] = useState<{ of: string; answer: T } | null>(null);
  useEffect(() => {
    if (text === null) return undefined;
    const asking = new AbortController();
    const timer = setTimeout(() => {
      ask(asking.signal)
        .then((answer) => setState({ of: text, answer }))
        .catch((error: unknown) => {
          if (!isAborted(error)) throw error;
        });
    }, restMs);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [text]);
  return { answer: state?.answer ?? null, isAsking: text !== null && state?.of !== text };
}
