/** Numbers, spans of time and moments as people read them. Times are UTC, as everywhere in the service. */

const NUMBER = new Intl.NumberFormat("en-US");
const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** What stands where a value is not known. */
export const NONE = "–";

export function count(value: number | null | undefined): string {
  return value == null ? NONE : NUMBER.format(value);
}

/** A number in little room: 12,340 → 12.3K. */
export function compact(value: number | null | undefined): string {
  if (value == null) return NONE;
  if (Math.abs(value) < 10 && !Number.isInteger(value)) return value.toFixed(1);
  return Math.abs(value) < 10_000 ? NUMBER.format(Math.round(value)) : COMPACT.format(value);
}

export function rate(perSecond: number | null | undefined): string {
  if (perSecond == null) return NONE;
  return `${compact(perSecond)}/s`;
}

export function percent(share: number, digits = 1): string {
  return `${(share * 100).toFixed(share !== 0 && share < 0.001 ? 3 : digits)} %`;
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** A length of time in its largest fitting units: 5400000 → 1 h 30 min. */
export function span(ms: number | null | undefined): string {
  if (ms == null) return NONE;
  const sign = ms < 0 ? "−" : "";
  let left = Math.abs(ms);
  if (left < 1_000) return `${sign}${Math.round(left)} ms`;
  if (left < 10_000) return `${sign}${trimmed(left / 1_000)} s`;
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const whole = Math.floor(left / size);
    if (whole > 0 && parts.length < 2) parts.push(`${whole} ${unit}`);
    else if (parts.length > 0) break;
    left -= whole * size;
  }
  return sign + parts.join(" ");
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

/** A span as definitions write it: 5400000 → 90m. Exact. */
export function durationText(ms: number): string {
  for (const [size, unit] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1_000, "s"]] as [number, string][]) {
    if (ms >= size && ms % size === 0) return `${ms / size}${unit}`;
  }
  return ms === 0 ? "0s" : `${ms}ms`;
}

/** A moment in UTC: 2013-01-31 18:00:00. */
export function moment(at: number | string | null | undefined, withDate = true): string {
  if (at == null) return NONE;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const text = date.toISOString();
  const ms = text.slice(20, 23);
  return `${withDate ? `${text.slice(0, 10)} ` : ""}${text.slice(11, 19)}${ms === "000" || withDate ? "" : `.${ms}`}`;
}

/** How long ago a moment of the wall clock is. */
export function ago(at: string | null | undefined, now = Date.now()): string {
  if (at == null) return NONE;
  const ms = now - new Date(at).getTime();
  return ms < 1_500 ? "just now" : `${span(ms < 10_000 ? Math.round(ms / 1_000) * 1_000 : ms)} ago`;
}

/** In how long a moment of the wall clock comes. */
export function until(at: string, now = Date.now()): string {
  return span(Math.max(0, new Date(at).getTime() - now));
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A code as words: window_closed → window closed. */
export function words(code: string): string {
  return code.replaceAll("_", " ");
}
