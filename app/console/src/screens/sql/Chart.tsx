/** A result as a chart: one column along the bottom, one drawn, rows split into lines by a text. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { compact, plural } from "~/format";
import { colour, colours } from "~/theme";
import { MOST_LINES, plotOf, type Plotable } from "./plotting";
import type { Column } from "./running";

const HEIGHT = 340;
const COLOURS = ["--accent", "--land", "--late", "--clock", "--water", "--muted", "--text", "--line-strong"];

export function Chart({ columns, rows, can }: { columns: Column[]; rows: unknown[][]; can: Plotable }) {
  const [bottom, setBottom] = useState(can.bottoms[0]!);
  const usable = can.values.filter((name) => name !== bottom);
  const [chosen, setValue] = useState(usable[0] ?? "");
  const value = usable.includes(chosen) ? chosen : (usable[0] ?? "");
  const splits = can.splits.filter((name) => name !== bottom);
  const [split, setSplit] = useState<string | null>(can.bottoms.includes(splits[0] ?? "") && can.bottoms[0] === splits[0] ? null : (splits[0] ?? null));
  const plot = useMemo(() => plotOf(columns, rows, bottom, value, split !== null && splits.includes(split) ? split : null), [columns, rows, bottom, value, split]);
  const host = useRef<HTMLDivElement>(null);
  const theme = colours.value;

  useEffect(() => {
    const element = host.current!;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const texts = plot.texts;
    const isFew = plot.places.length < 40;
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC"),
        scales: { x: { time: plot.isTime, ...(texts === null ? {} : { range: [-0.6, texts.length - 0.4] as [number, number] }) } },
        axes: [
          texts === null ? axis : { ...axis, splits: () => texts.map((_, at) => at), values: (_, places) => places.map((place) => texts[place] ?? ""), grid: { show: false } },
          { ...axis, size: 56, values: (_, places) => places.map((place) => compact(place)) },
        ],
        series: [
          texts === null ? {} : { value: (_, place) => (place === null ? "" : (texts[place] ?? "")) },
          ...plot.lines.map((line, at) => ({
            label: line.name,
            stroke: colour(COLOURS[at % COLOURS.length]!),
            fill: texts === null ? undefined : colour(COLOURS[at % COLOURS.length]!),
            width: 1.6,
            spanGaps: false,
            points: { show: isFew && texts === null, size: 5 },
            ...(texts === null || uPlot.paths.bars === undefined ? {} : { paths: uPlot.paths.bars({ size: [0.6, 60] }) }),
          })),
        ],
      },
      [plot.places, ...plot.lines.map((line) => line.values)],
      element,
    );
    const sized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      made.destroy();
    };
  }, [plot, theme]);

  return (
    <div class="body stack">
      <div class="row wrap">
        <Choice label="Along the bottom" value={bottom} names={can.bottoms} onChange={setBottom} />
        <Choice label="Drawn" value={value} names={usable} onChange={setValue} />
        {splits.length > 0 && <Choice label="A line for each" value={split ?? ""} names={["", ...splits]} onChange={(name) => setSplit(name === "" ? null : name)} />}
        {plot.left > 0 && <span class="small muted">{plural(plot.left, "further line")} beyond {MOST_LINES} not drawn</span>}
      </div>
      <div ref={host} class="sql-chart" role="img" aria-label={`${value} by ${bottom}: ${plural(plot.lines.length, "line")}, ${plural(plot.places.length, "place")}. The grid has the same numbers.`} />
    </div>
  );
}

function Choice({ label, value, names, onChange }: { label: string; value: string; names: string[]; onChange: (name: string) => void }) {
  return (
    <label class="row">
      <span class="muted small">{label}</span>
      <select class="input" style={{ width: "auto" }} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {names.map((name) => (
          <option key={name} value={name}>
            {name === "" ? "one line" : name}
          </option>
        ))}
      </select>
    </label>
  );
}
