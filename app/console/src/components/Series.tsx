/** Curves over time (uPlot). What they show can also be read as numbers beside them: a canvas says nothing to screen readers. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./series.css";
import { compact } from "~/format";
import { colour, colours } from "~/theme";

export interface Curve {
  label: string;
  /** A token such as `--accent`. */
  colour: string;
  values: readonly (number | null)[];
  /** With the area below it. */
  filled?: boolean;
}

interface Props {
  label: string;
  /** Milliseconds since 1970, ascending. */
  times: readonly number[];
  curves: readonly Curve[];
  height?: number;
  /** How values are written. */
  format?: (value: number) => string;
}

/** Between two marks of time: none is shorter than the second that its text tells. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400];

export function Series({ label, times, curves, height = 150, format = compact }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = curves.map((curve) => curve.label + curve.colour).join();
  const theme = colours.value;

  useEffect(() => {
    const element = place.current!;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: Math.max(element.clientWidth, 100),
        height,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        hooks: { setCursor: [tellNewest] },
        scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
        axes: [
          { ...axis, values: "{HH}:{mm}:{ss}", space: 80, incrs: SECONDS },
          { ...axis, size: 52, space: 30, values: (_, values) => values.map(format) },
        ],
        series: [
          { label: "Time", value: "{HH}:{mm}:{ss}" },
          ...curves.map((curve) => {
            const stroke = colour(curve.colour);
            return {
              label: curve.label,
              stroke,
              width: 1.6,
              ...(curve.filled ? { fill: stroke.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)") } : {}),
              points: { show: false },
              value: (_: uPlot, value: number | null) => (value == null ? "–" : format(value)),
            };
          }),
        ],
      },
      dataOf(times, curves),
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 100), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, height, theme]);

  useEffect(() => {
    plot.current?.setData(dataOf(times, curves));
    if (plot.current !== null) tellNewest(plot.current);
  });

  return <div ref={place} class="series" role="img" aria-label={label} />;
}

/** As long as nobody points at a time, the legend tells the newest numbers. */
function tellNewest(made: uPlot): void {
  if ((made.cursor.left ?? -1) < 0) made.setLegend({ idx: made.data[0].length - 1 }, false);
}

function dataOf(times: readonly number[], curves: readonly Curve[]): uPlot.AlignedData {
  return [times.map((ms) => ms / 1_000), ...curves.map((curve) => [...curve.values])];
}
