/** A key's versions along event time: how long each was valid, and one column as a curve of steps. */
import { moment } from "~/format";
import { textOf } from "~/records/cells";
import { stretchesOf, type Version } from "./versions";

const WIDTH = 780;
const CURVE = 84;
const BAR = 12;

interface Props {
  versions: Version[];
  /** Where the line ends: stream time. */
  toMs: number;
  /** The column that is drawn; null: none has numbers. */
  column: string | null;
  marked: Version | null;
  onMark: (version: Version | null) => void;
}

export function Timeline({ versions, toMs, column, marked, onMark }: Props) {
  const first = versions[0];
  if (first === undefined) return null;
  const fromMs = first.fromMs;
  const stretches = stretchesOf(versions, fromMs, Math.max(toMs, versions.at(-1)!.fromMs + 1));
  const values = column === null ? [] : versions.map((version) => version.row[column]).filter((value) => value !== null && value !== undefined).map(Number);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const y = (value: number): number => (most === least ? CURVE / 2 : CURVE - 6 - ((value - least) / (most - least)) * (CURVE - 16));
  const top = column === null || values.length === 0 ? 0 : CURVE;
  let line = "";
  let before: number | null = null;
  for (const { left, width, version } of stretches) {
    const value = version === null || column === null ? null : version.row[column];
    if (value === null || value === undefined) {
      before = null;
      continue;
    }
    const height = y(Number(value));
    line += `${before === null ? "M" : "L"}${(left * WIDTH).toFixed(1)} ${height.toFixed(1)}L${((left + width) * WIDTH).toFixed(1)} ${height.toFixed(1)}`;
    before = height;
  }
  const label = `${versions.length} versions from ${moment(fromMs)} to ${moment(toMs)}${column === null || values.length === 0 ? "" : `; ${column} between ${least} and ${most}`}`;
  return (
    <figure class="timeline">
      <svg viewBox={`0 0 ${WIDTH} ${top + BAR + 2}`} preserveAspectRatio="none" role="img" aria-label={label} onMouseLeave={() => onMark(null)}>
        {line !== "" && <path d={line} fill="none" stroke="var(--accent)" stroke-width="1.6" vector-effect="non-scaling-stroke" />}
        {stretches.map(({ left, width, version }, at) =>
          version === null ? (
            <rect key={at} x={left * WIDTH} y={top} width={Math.max(width * WIDTH, 0.5)} height={BAR} fill="var(--late-soft)">
              <title>deleted</title>
            </rect>
          ) : (
            <rect key={at} class={version === marked ? "version is-marked" : "version"} x={left * WIDTH} y={top} width={Math.max(width * WIDTH - 0.6, 0.6)} height={BAR} onMouseEnter={() => onMark(version)}>
              <title>{`from ${moment(version.fromMs)}${column === null ? "" : `: ${column} ${textOf(version.row[column])}`}`}</title>
            </rect>
          ),
        )}
      </svg>
      <figcaption class="row spread small muted">
        <span>{moment(fromMs)}</span>
        {column !== null && values.length > 0 && (
          <span>
            {column}: {textOf(least)} to {textOf(most)}
          </span>
        )}
        <span>{moment(toMs)}</span>
      </figcaption>
    </figure>
  );
}
