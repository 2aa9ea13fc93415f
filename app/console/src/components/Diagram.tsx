/** Boxes and arrows, laid out from left to right (dagre): the graph of relations and queries, and the plan of a query. */
import dagre from "@dagrejs/dagre";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { navigate } from "~/router";
import "./diagram.css";

export interface Box {
  id: string;
  width: number;
  height: number;
  /** Drawn from the box's top left corner. */
  content: ComponentChildren;
  /** Where it leads; null: nowhere. */
  to: string | null;
  /** What it is, for screen readers, where it leads nowhere; a link is called what it says. */
  label: string;
  tone?: string;
  shape?: "round";
}

export interface Arrow {
  from: string;
  to: string;
  /** Up to two short lines. */
  lines?: readonly string[];
  isFlowing?: boolean;
  tone?: "late" | "muted";
}

interface Point {
  x: number;
  y: number;
}

interface Laid {
  width: number;
  height: number;
  boxes: Map<string, Point>;
  arrows: { path: string; middle: Point }[];
}

const MARGIN = 12;

export function Diagram({ boxes, arrows, label, gap = 96 }: { boxes: readonly Box[]; arrows: readonly Arrow[]; label: string; gap?: number }) {
  // The layout depends on what is there alone: numbers change without anything moving.
  const shape = JSON.stringify([boxes.map((box) => [box.id, box.width, box.height]), arrows.map((arrow) => [arrow.from, arrow.to]), gap]);
  const laid = useMemo(() => layout(boxes, arrows, gap), [shape]);
  return (
    <div class="diagram" tabIndex={0} role="region" aria-label={label}>
      <svg width={laid.width} height={laid.height} viewBox={`0 0 ${laid.width} ${laid.height}`}>
        <defs>
          <marker id="arrow-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0.5L7 4L0 7.5" fill="none" stroke="var(--line-strong)" stroke-width="1.4" />
          </marker>
        </defs>
        {arrows.map((arrow, index) => {
          const { path, middle } = laid.arrows[index]!;
          return (
            <g key={`${arrow.from}→${arrow.to}`} class={arrow.tone}>
              <path d={path} class="arrow" marker-end="url(#arrow-head)" />
              {arrow.isFlowing && <path d={path} class="flow" />}
              {arrow.lines?.map((line, row) => (
                <text key={row} x={middle.x} y={middle.y - 5 + row * 13 + (arrow.lines!.length > 1 ? -3 : 0)} class={row === 0 ? "arrow-text" : "arrow-text more"}>
                  {line}
                </text>
              ))}
            </g>
          );
        })}
        {boxes.map((box) => {
          const at = laid.boxes.get(box.id)!;
          const inside = (
            <>
              <rect width={box.width} height={box.height} rx={box.shape === "round" ? box.height / 2 : 7} class={`box ${box.tone ?? ""}`} />
              {box.content}
            </>
          );
          return (
            <g key={box.id} transform={`translate(${at.x - box.width / 2} ${at.y - box.height / 2})`}>
              {box.to === null ? (
                <g role="img" aria-label={box.label}>
                  {inside}
                </g>
              ) : (
                <a
                  href={`/console${box.to}`}
                  onClick={(event) => {
                    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                    event.preventDefault();
                    navigate(box.to!);
                  }}
                >
                  {inside}
                </a>
              )}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function layout(boxes: readonly Box[], arrows: readonly Arrow[], gap: number): Laid {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 26, ranksep: gap, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  for (const arrow of arrows) graph.setEdge(arrow.from, arrow.to, {}, `${arrow.from}→${arrow.to}`);
  dagre.layout(graph);
  const { width = 100, height = 100 } = graph.graph() as { width?: number; height?: number };
  return {
    width,
    height,
    boxes: new Map(boxes.map((box) => [box.id, graph.node(box.id) as Point])),
    arrows: arrows.map((arrow) => {
      const { points } = graph.edge({ v: arrow.from, w: arrow.to, name: `${arrow.from}→${arrow.to}` }) as { points: Point[] };
      return { path: curved(points), middle: points[Math.floor(points.length / 2)]! };
    }),
  };
}

function curved(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let path = `M${first.x} ${first.y}`;
  for (let index = 0; index < rest.length; index += 1) {
    const point = rest[index]!;
    const next = rest[index + 1];
    if (next === undefined) path += `L${point.x} ${point.y}`;
    else path += `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  }
  return path;
}

/** Shorten a text to about so many characters: SVG does not cut it by itself. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}
