/** Which relations take records from here: sources in the built-in log that nobody else fills, for keys that may write. */
import type { Relation } from "~/api/types";
import { may } from "~/session";

export function takesRecords(relation: Relation): boolean {
  const connector = (relation.definition as { connector?: { type?: string } } | null)?.connector;
  return may("write") && relation.origin === "source" && !relation.read_only && connector?.type === "log";
}
