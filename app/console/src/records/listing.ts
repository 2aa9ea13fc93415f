/** All streams and tables with their columns, for completion and for who looks for a name. */
import { api } from "~/api/client";
import type { Relation } from "~/api/types";

const PAGE = 1_000;

export async function listRelations(signal: AbortSignal): Promise<Relation[]> {
  const [streams, tables] = await Promise.all([all("/v1/streams", signal), all("/v1/tables", signal)]);
  return [...streams, ...tables].sort((one, other) => one.name.localeCompare(other.name));
}

async function all(path: "/v1/streams" | "/v1/tables", signal: AbortSignal): Promise<Relation[]> {
  const found: Relation[] = [];
  let cursor: string | null = null;
  do {
    const page: { items: Relation[]; next: string | null } = await api.get(path, { query: { limit: PAGE, cursor }, signal });
    found.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  return found;
}
