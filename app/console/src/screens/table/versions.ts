/** A key's versions: which columns changed from one to the next, and where each stands on a line of time. */

export type Row = Record<string, unknown>;

export interface Version {
  row: Row;
  fromMs: number;
  /** null: it is valid still. */
  toMs: number | null;
  /** Columns that differ from the version before; null: there is none before it here. */
  changed: string[] | null;
}

/** Order versions by time, oldest first, and compare neighbours. A gap between two is a time in which the row was deleted. */
export function versionsOf(rows: Row[], key: string[]): Version[] {
  const found = rows
    .map((row) => ({ row, fromMs: Number(row["$valid_from_ms"]), toMs: row["$valid_to_ms"] == null ? null : Number(row["$valid_to_ms"]) }))
    .sort((a, b) => a.fromMs - b.fromMs);
  return found.map((version, at) => {
    const before = found[at - 1];
    const names = Object.keys(version.row).filter((name) => !name.startsWith("$") && !key.includes(name));
    return { ...version, changed: before === undefined ? null : names.filter((name) => !isEqual(version.row[name], before.row[name])) };
  });
}

function isEqual(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

export interface Stretch {
  /** Share of the line's width, 0 to 1. */
  left: number;
  width: number;
  version: Version | null;
}

/** Versions and the gaps between them as parts of a line from `fromMs` to `toMs`. */
export function stretchesOf(versions: Version[], fromMs: number, toMs: number): Stretch[] {
  const whole = Math.max(toMs - fromMs, 1);
  const place = (ms: number): number => Math.min(Math.max((ms - fromMs) / whole, 0), 1);
  const parts: Stretch[] = [];
  let reached: number | null = null;
  for (const version of versions) {
    if (reached !== null && version.fromMs > reached) {
      parts.push({ left: place(reached), width: place(version.fromMs) - place(reached), version: null });
    }
    const end = version.toMs ?? toMs;
    parts.push({ left: place(version.fromMs), width: Math.max(place(end) - place(version.fromMs), 0), version });
    reached = end;
  }
  return parts;
}
