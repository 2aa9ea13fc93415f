/** A small curve of the newest values. It has no axes: the number beside it says where it ends. */
interface Props {
  values: readonly (number | null)[];
  /** Read out by screen readers in place of the picture, such as "rate over the last 3 minutes". */
  label: string;
  width?: number;
  height?: number;
  colour?: string;
}

export function Sparkline({ values: given, label, width = 72, height = 22, colour = "var(--accent)" }: Props) {
  const values = given.slice(Math.max(0, given.findIndex((value) => value !== null)));
  const known = values.filter((value): value is number => value !== null);
  const most = Math.max(...known, 0);
  const least = Math.min(...known, 0);
  const reach = most - least || 1;
  const step = width / Math.max(values.length - 1, 1);
  const y = (value: number): number => height - 1.5 - ((value - least) / reach) * (height - 3);
  let line = "";
  let isOpen = false;
  values.forEach((value, index) => {
    if (value === null) isOpen = false;
    else {
      line += `${isOpen ? "L" : "M"}${(index * step).toFixed(1)} ${y(value).toFixed(1)}`;
      isOpen = true;
    }
  });
  const isWhole = known.length === values.length && known.length > 1;
  return (
    <svg class="spark" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      {known.length < 2 ? (
        <line x1="0" x2={width} y1={height - 1.5} y2={height - 1.5} stroke="var(--line-strong)" stroke-dasharray="2 3" />
      ) : (
        <>
          {isWhole && <path d={`${line}L${width} ${height}L0 ${height}Z`} fill={colour} fill-opacity=".1" />}
          <path d={line} fill="none" stroke={colour} stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round" />
        </>
      )}
    </svg>
  );
}
