/**
 * Rows of data, any number of them: a grid that scrolls both ways, its head and its first column stay. Only rows in sight are in the page.
 *
 * Arrow keys go from row to row, Enter chooses one. Unlike `VirtualTable`, which lists things that have screens of their own, this one shows
 * columns that nobody knew when it was written.
 */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Cell, INSTANT, isNumeric, textOf } from "./cells";
import "./records.css";

export interface GridColumn {
  name: string;
  type?: string;
  isKey?: boolean;
}

export interface GridRow {
  id: string;
  values: readonly unknown[];
  /** `new`: it has just come; `gone`: it was deleted. */
  tone?: "new" | "gone";
}

interface Props {
  label: string;
  columns: readonly GridColumn[];
  rows: readonly GridRow[];
  /** Height of the grid in rows, at most. */
  mostRows?: number;
  chosen?: string | null;
  onChoose?: (row: GridRow) => void;
  /** Called when the end comes into sight: there may be more to fetch. */
  onEnd?: () => void;
}

const ROW = 32;
const MARGIN = 10;
const SAMPLE = 60;
/** Room for the bar that scrolls sideways. */
const SCROLLBAR = 16;
const CHARACTER = 8.3;
/** Digits all have one width. A number that is cut off is another number. */
const DIGIT = 9.2;

export function RowGrid({ label, columns, rows, mostRows = 18, chosen = null, onChoose, onEnd }: Props) {
  const outer = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [active, setActive] = useState(0);
  const visible = mostRows + MARGIN * 2;
  const widths = useMemo(() => columns.map((column, at) => widthOf(column, at, rows)), [columns, rows.length === 0, rows[0]?.id]);
  const template = templateOf(widths, columns);

  const look = (): void => {
    const element = outer.current;
    if (element === null) return;
    setFirst(Math.max(0, Math.floor(element.scrollTop / ROW) - MARGIN));
    if (onEnd !== undefined && element.scrollTop + element.clientHeight >= element.scrollHeight - ROW * 12) onEnd();
  };
  useLayoutEffect(look, [rows.length]);

  const go = (to: number): void => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setActive(next);
    const element = outer.current!;
    const top = next * ROW;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW * 2 > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW * 2 - element.clientHeight;
  };
  const keyed = (event: KeyboardEvent): void => {
    const page = Math.max(1, mostRows - 2);
    const steps: Record<string, number> = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1 };
    if (event.key in steps && !event.shiftKey) {
      event.preventDefault();
      go(steps[event.key]!);
    } else if (event.key === "Enter" && onChoose !== undefined && rows[active] !== undefined) {
      event.preventDefault();
      onChoose(rows[active]);
    }
  };

  return (
    <div class="grid" ref={outer} tabIndex={0} role="table" aria-label={label} aria-rowcount={rows.length + 1} aria-colcount={columns.length} style={{ maxHeight: `${(mostRows + 1) * ROW + SCROLLBAR}px` }} onScroll={look} onKeyDown={keyed}>
      <div class="grid-inside" style={{ minWidth: `${widths.reduce((sum, width) => sum + width, 0)}px` }} role="rowgroup">
        <div class="grid-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
          {columns.map((column) => (
            <div key={column.name} role="columnheader" class={isNumeric(column.type) ? "num" : undefined} title={column.type}>
              {column.name}
              {column.isKey && <span class="grid-key" title="part of the key">key</span>}
            </div>
          ))}
        </div>
        <div style={{ height: `${rows.length * ROW}px`, position: "relative" }} role="presentation">
          {rows.slice(first, first + visible).map((row, offset) => {
            const at = first + offset;
            return (
              <div
                key={row.id}
                class={["grid-row", row.tone, onChoose && "can-choose", at === active && "is-active"].filter(Boolean).join(" ")}
                role="row"
                aria-rowindex={at + 2}
                aria-current={row.id === chosen ? "true" : undefined}
                style={{ gridTemplateColumns: template, top: `${at * ROW}px` }}
                onClick={() => {
                  setActive(at);
                  onChoose?.(row);
                }}
              >
                {columns.map((column, place) => (
                  <div key={column.name} role="cell" class={isNumeric(column.type) ? "num" : undefined} title={title(row.values[place], column.type)}>
                    <Cell value={row.values[place]} type={column.type} />
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** A title is made only where a cell may be cut off. */
function title(value: unknown, type: string | undefined): string | undefined {
  if (value === null || (typeof value === "number" && type !== INSTANT)) return undefined;
  const text = textOf(value);
  return type === INSTANT || text.length > 20 ? text : undefined;
}

/** A text at the end takes the room that is left; a number does not, or it would stand far from its neighbours. */
function templateOf(widths: readonly number[], columns: readonly GridColumn[]): string {
  const isText = !isNumeric(columns.at(-1)?.type);
  const fixed = widths.map((width, at) => (isText && at === widths.length - 1 ? `minmax(${width}px, 1fr)` : `${width}px`));
  return [...fixed, ...(isText ? [] : ["minmax(0, 1fr)"])].join(" ");
}

function widthOf(column: GridColumn, at: number, rows: readonly GridRow[]): number {
  const head = column.name.length + (column.isKey ? 5 : 0);
  const longest = rows.slice(0, SAMPLE).reduce((most, row) => Math.max(most, column.type === INSTANT ? 19 : textOf(row.values[at]).length), head);
  return Math.round(Math.min(Math.max(longest * (isNumeric(column.type) ? DIGIT : CHARACTER) + 24, 64), isNumeric(column.type) ? 460 : 340));
}
