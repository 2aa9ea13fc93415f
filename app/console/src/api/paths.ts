/** What lists and relations have in common: pages one after the other, and the path of a stream or a table. */

export const RELATION_PATH = { stream: "/v1/streams/{name}", table: "/v1/tables/{name}" } as const;

/** Read every page of a list. */
export async function everyPage<T>(read: (cursor: string | null) => Promise<{ items: T[]; next: string | null }>): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | null = null;
  do {
    const page: { items: T[]; next: string | null } = await read(cursor);
    found.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  return found;
}
