/** Where a relation's records are, and which relations take records from here. */
import type { Relation } from "~/api/types";
import { may } from "~/session";

/** Whether records are in the built-in log: of all results, and of sources that do not name another connector. */
export function isKeptHere(relation: Relation): boolean {
  const connector = (relation.definition as { connector?: { type?: string } } | null)?.connector;
  return relation.origin !== "source" || connector?.type === "log";
}

/** Sources in the built-in log that nobody else fills, for keys that may write. */
export function takesRecords(relation: Relation): boolean {
  return may("write") && relation.origin === "source" && !relation.read_only && isKeptHere(relation);
}
