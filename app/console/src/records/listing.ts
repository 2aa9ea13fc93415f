/** All streams and tables with their columns, for completion and for who looks for a name. */
import { api } from "~/api/client";
import { everyPage } from "~/api/paths";
import type { Relation } from "~/api/types";

const PAGE = 1_000;

export async function listRelations(signal: AbortSignal): Promise<Relation[]> {
  const [streams, tables] = await Promise.all([all("/v1/streams", signal), all("/v1/tables", signal)]);
  return [...streams, ...tables].sort((one, other) => one.name.localeCompare(other.name));
}

async function all(path: "/v1/streams" | "/v1/tables", signal: AbortSignal): Promise<Relation[]> {
  return await everyPage((cursor) => api.get(path, { query: { limit: PAGE, cursor }, signal }));
}
