/** Small hooks: the width of an element, numbers that glide, a value that settles. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Return a ref to put on an element, and its width in pixels. */
export function useWidth<E extends HTMLElement>(initial = 800): [{ current: E | null }, number] {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(initial);
  useLayoutEffect(() => {
    const element = ref.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    setWidth(element.clientWidth);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

const GLIDE_MS = 700;

/** Return numbers that glide to the given ones, so that what moves is seen to move. As many as before, or they jump. */
export function useGliding(target: readonly number[]): readonly number[] {
  const [shown, setShown] = useState(target);
  const now = useRef(target);
  const wanted = target.join(",");
  useEffect(() => {
    const from = now.current;
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (isStill || from.length !== target.length || from.every((value, index) => value === target[index])) {
      now.current = target;
      setShown(target);
      return undefined;
    }
    const began = performance.now();
    let frame = requestAnimationFrame(function step(at) {
      const part = Math.min(1, (at - began) / GLIDE_MS);
      const eased = 1 - (1 - part) ** 3;
      now.current = target.map((value, index) => from[index]! + (value - from[index]!) * eased);
      setShown(now.current);
      if (part < 1) frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [wanted]);
  return shown.length === target.length ? shown : target;
}

/** Return a value once it has not changed for a moment: for requests that follow what is typed. */
export function useSettled<T>(value: T, ms = 300): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
