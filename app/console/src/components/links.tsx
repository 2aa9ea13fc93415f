/** Links to queries and relations by name: text alone where there is no screen for them. */
import type { ComponentChildren } from "preact";
import { Link, pathOf } from "~/router";
import { screenFor } from "~/screens/registry";

const WITHHELD = "(withheld)";

export function QueryLink({ name, children }: { name: string; children?: ComponentChildren }) {
  return <Named name={name} to={pathOf("/queries/:name", { name })}>{children}</Named>;
}

export function RelationLink({ name, kind, children }: { name: string; kind: "stream" | "table"; children?: ComponentChildren }) {
  return <Named name={name} to={pathOf(`/${kind}s/:name`, { name })}>{children}</Named>;
}

function Named({ name, to, children }: { name: string; to: string; children?: ComponentChildren }) {
  const shown = children ?? name;
  return name === WITHHELD || screenFor(to) === null ? <span>{shown}</span> : <Link to={to}>{shown}</Link>;
}
