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
  /** Whatever hangs together with the box that needs most stands on top; 0: nobody has to look. */
  urgency?: number;
}

export interface Arrow {
  from: string;
  to: string;
  /** Up to two short lines; there is room for them, also while they are empty. */
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
const LABEL = { width: 84, height: 28, labelpos: "c" };

export function Diagram({ boxes, arrows, label, gap = 40 }: { boxes: readonly Box[]; arrows: readonly Arrow[]; label: string; gap?: number }) {
  // The layout depends on what is there alone: numbers change without anything moving.
  const shape = JSON.stringify([
    boxes.map((box) => [box.id, box.width, box.height, box.urgency]),
    arrows.map((arrow) => [arrow.from, arrow.to, arrow.lines !== undefined]),
    gap,
  ]);
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
            <g key={box.id} data-box={box.id} transform={`translate(${at.x - box.width / 2} ${at.y - box.height / 2})`}>
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

/** Bring a box into sight, and the keyboard to it. */
export function showBox(id: string): void {
  const box = document.querySelector(`[data-box="${CSS.escape(id)}"]`);
  box?.scrollIntoView({ block: "center", inline: "center" });
  box?.querySelector("a")?.focus({ preventScroll: true });
}

/** Lay out each part that hangs together by itself, one below the other: the one that needs most first. */
function layout(boxes: readonly Box[], arrows: readonly Arrow[], gap: number): Laid {
  const laid: Laid = { width: 0, height: 0, boxes: new Map(), arrows: [] };
  const places = new Map<Arrow, Laid["arrows"][number]>();
  for (const part of partsOf(boxes, arrows)) {
    const own = arrows.filter((arrow) => part.has(arrow.from));
    const one = layoutOfPart(boxes.filter((box) => part.has(box.id)), own, gap, laid.height);
    laid.width = Math.max(laid.width, one.width);
    laid.height = one.height;
    for (const [id, at] of one.boxes) laid.boxes.set(id, at);
    own.forEach((arrow, index) => places.set(arrow, one.arrows[index]!));
  }
  return { ...laid, arrows: arrows.map((arrow) => places.get(arrow)!) };
}

/** Return the boxes of each part that hangs together. */
function partsOf(boxes: readonly Box[], arrows: readonly Arrow[]): Set<string>[] {
  const neighbours = new Map<string, string[]>(boxes.map((box) => [box.id, []]));
  for (const { from, to } of arrows) {
    neighbours.get(from)!.push(to);
    neighbours.get(to)!.push(from);
  }
  const urgencies = new Map(boxes.map((box) => [box.id, box.urgency ?? 0]));
  const seen = new Set<string>();
  const parts: { ids: Set<string>; urgency: number }[] = [];
  for (const box of boxes) {
    if (seen.has(box.id)) continue;
    const ids = new Set<string>();
    const open = [box.id];
    while (open.length > 0) {
      const id = open.pop()!;
      if (seen.has(id)) continue;
      seen.add(id);
      ids.add(id);
      open.push(...neighbours.get(id)!);
    }
    parts.push({ ids, urgency: Math.max(...[...ids].map((id) => urgencies.get(id)!)) });
  }
  return parts.sort((a, b) => b.urgency - a.urgency).map((part) => part.ids);
}

function layoutOfPart(boxes: readonly Box[], arrows: readonly Arrow[], gap: number, top: number): Laid {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 26, ranksep: gap, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  for (const arrow of arrows) graph.setEdge(arrow.from, arrow.to, arrow.lines === undefined ? {} : { ...LABEL }, `${arrow.from}→${arrow.to}`);
  dagre.layout(graph);
  const { width = 100, height = 100 } = graph.graph() as { width?: number; height?: number };
  const lowered = ({ x, y }: Point): Point => ({ x, y: y + top });
  return {
    width,
    height: height + top,
    boxes: new Map(boxes.map((box) => [box.id, lowered(graph.node(box.id) as Point)])),
    arrows: arrows.map((arrow) => {
      const edge = graph.edge({ v: arrow.from, w: arrow.to, name: `${arrow.from}→${arrow.to}` }) as { points: Point[] } & Partial<Point>;
      const [from, to] = [arrow.from, arrow.to].map((id) => graph.node(id) as Point & { width: number }) as [Point & { width: number }, Point & { width: number }];
      // From the middle of one side to the middle of the other: so it comes from the left, and crosses no box beside.
      const points = [{ x: from.x + from.width / 2, y: from.y }, ...edge.points.slice(1, -1), { x: to.x - to.width / 2, y: to.y }].map(lowered);
      const middle = edge.x !== undefined && edge.y !== undefined ? lowered({ x: edge.x, y: edge.y }) : points[Math.floor(points.length / 2)]!;
      return { path: curved(points), middle };
    }),
  };
}

function curved(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let path = `M${first.x} ${first.y}`;
  let before = first;
  for (const point of rest) {
    const middle = (before.x + point.x) / 2;
    path += `C${middle} ${before.y} ${middle} ${point.y} ${point.x} ${point.y}`;
    before = point;
  }
  return path;
}

/** Shorten a text to about so many characters: SVG does not cut it by itself. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}
