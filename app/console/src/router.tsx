/** Where the reader is: the address below `/console`, and links that change it without loading the page again. */
import { computed, signal } from "@preact/signals";
import type { ComponentChildren, TargetedMouseEvent } from "preact";

const BASE = "/console";

interface Place {
  path: string;
  query: URLSearchParams;
}

function here(): Place {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : location.pathname;
  return { path: path === "" ? "/" : path, query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(here());
export const path = computed(() => place.value.path);

window.addEventListener("popstate", () => {
  place.value = here();
});

/** Go somewhere: `navigate("/queries/delays?tab=late")`. */
export function navigate(to: string, { replace = false } = {}): void {
  const target = BASE + (to === "/" ? "/" : to);
  if (replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  const before = place.peek().path;
  place.value = here();
  if (place.peek().path !== before) scrollTo(0, 0);
}

/** Set parameters of the address; null takes one away. No new entry in the history. */
export function setQuery(values: Record<string, string | null>): void {
  const query = new URLSearchParams(place.peek().query);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  navigate(place.peek().path + (text ? `?${text}` : ""), { replace: true });
}

/** Match a path with a pattern such as `/queries/:name`; returns its parameters, or null. */
export function matched(pattern: string, found: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = found.split("/").filter(Boolean);
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index]!;
    if (part.startsWith(":")) {
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return params;
}

/** Build a path: `pathOf("/queries/:name", { name })`. */
export function pathOf(pattern: string, params: Record<string, string>): string {
  return pattern.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
}

interface LinkProps {
  to: string;
  children: ComponentChildren;
  class?: string;
  title?: string;
  "aria-label"?: string;
  "aria-current"?: "page";
  onClick?: (event: TargetedMouseEvent<HTMLAnchorElement>) => void;
}

export function Link({ to, children, onClick, ...rest }: LinkProps) {
  return (
    <a
      {...rest}
      href={BASE + to}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        navigate(to);
      }}
    >
      {children}
    </a>
  );
}
