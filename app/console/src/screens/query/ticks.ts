/** Where an axis of event time has its marks: at whole minutes, hours, days. */
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 7_776_000, 31_536_000].map((seconds) => seconds * 1_000);
const DAY = 86_400_000;
const YEAR = 365 * DAY;

export function ticks(low: number, high: number, most: number): { ms: number; text: string }[] {
  const step = STEPS.find((size) => (high - low) / size <= most) ?? STEPS.at(-1)!;
  const found = [];
  for (let ms = Math.ceil(low / step) * step; ms <= high; ms += step) found.push({ ms, text: text(ms, step) });
  return found;
}

function text(ms: number, step: number): string {
  const whole = new Date(ms).toISOString();
  if (step >= DAY || ms % DAY === 0) return step >= YEAR ? whole.slice(0, 7) : `${whole.slice(8, 10)} ${MONTHS[new Date(ms).getUTCMonth()]}`;
  return step >= 60_000 ? whole.slice(11, 16) : whole.slice(11, 19);
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
