/**
 * A table for any number of rows: only those in sight are in the page, so that thousands do not stutter.
 *
 * Rows have one height; the page scrolls, the head stays. Arrow keys go from row to row. Columns that say `from` are left out where the table is
 * narrower than that.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link } from "~/router";

export interface Column<T> {
  id: string;
  title: string;
  /** Width as `grid-template-columns` takes it. */
  width: string;
  cell: (row: T) => ComponentChildren;
  /** What rows are sorted by; absent: the column does not sort. Null comes last. */
  sort?: (row: T) => string | number | null;
  align?: "end";
  /** The least width of the table, in pixels, in which the column is shown. */
  from?: number;
}

export interface Sorting {
  column: string;
  isDescending: boolean;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  rowKey: (row: T) => string;
  /** Where the first column's link goes. */
  to?: (row: T) => string;
  rowHeight?: number;
  sorting?: Sorting | null;
  onSort?: (sorting: Sorting | null) => void;
}

const MARGIN_ROWS = 8;

export function VirtualTable<T>({ label, rows, columns, rowKey, to, rowHeight = 44, sorting = null, onSort }: Props<T>) {
  const outer = useRef<HTMLDivElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const wanted = useRef<number | null>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const [width, setWidth] = useState(1_200);

  const sorted = useMemo(() => sortedRows(rows, columns, sorting), [rows, columns, sorting]);
  const shown = columns.filter((column) => (column.from ?? 0) <= width);

  useLayoutEffect(() => {
    const measure = (): void => {
      if (body.current === null || outer.current === null) return;
      const top = -body.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(top / rowHeight) - MARGIN_ROWS);
      const last = Math.ceil((top + innerHeight) / rowHeight) + MARGIN_ROWS;
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
      setWidth(outer.current.clientWidth);
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [rowHeight, rows.length]);

  useEffect(() => {
    if (wanted.current === null) return;
    const link = body.current?.querySelector<HTMLElement>(`[aria-rowindex="${wanted.current + 2}"] .row-link`);
    if (link) {
      wanted.current = null;
      link.focus();
      link.scrollIntoView({ block: "nearest" });
    }
  });

  const move = (event: KeyboardEvent): void => {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[aria-rowindex]");
    if (row === null || !["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
    const index = Number(row.getAttribute("aria-rowindex")) - 2;
    const next = event.key === "Home" ? 0 : event.key === "End" ? sorted.length - 1 : index + (event.key === "ArrowDown" ? 1 : -1);
    if (next < 0 || next >= sorted.length) return;
    event.preventDefault();
    const there = body.current?.querySelector<HTMLElement>(`[aria-rowindex="${next + 2}"] .row-link`);
    if (there) {
      there.focus();
      there.scrollIntoView({ block: "nearest" });
    } else {
      wanted.current = next;
      const top = body.current!.getBoundingClientRect().top + scrollY + next * rowHeight;
      scrollTo(0, top - innerHeight / 2);
    }
  };

  return (
    <div
      class="vtable"
      ref={outer}
      role="table"
      aria-label={label}
      aria-rowcount={sorted.length + 1}
      style={{ "--columns": shown.map((column) => column.width).join(" "), "--row-height": `${rowHeight}px` }}
      onKeyDown={move}
    >
      <div role="rowgroup">
        <div class="head" role="row" aria-rowindex={1}>
          {shown.map((column) => (
            <Head key={column.id} column={column} sorting={sorting} onSort={onSort} />
          ))}
        </div>
      </div>
      <div class="rows" role="rowgroup" ref={body} style={{ height: `${sorted.length * rowHeight}px` }}>
        {sorted.slice(range[0], range[1]).map((row, offset) => {
          const index = range[0] + offset;
          return (
            <div key={rowKey(row)} role="row" aria-rowindex={index + 2} style={{ transform: `translateY(${index * rowHeight}px)` }}>
              {shown.map((column, place) => (
                <div key={column.id} role="cell" class={column.align === "end" ? "num" : undefined}>
                  {place === 0 && to ? (
                    <Link class="row-link" to={to(row)}>
                      {column.cell(row)}
                    </Link>
                  ) : (
                    column.cell(row)
                  )}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Head<T>({ column, sorting, onSort }: { column: Column<T>; sorting: Sorting | null; onSort?: (sorting: Sorting | null) => void }) {
  const isOn = sorting?.column === column.id;
  const order = !isOn ? "none" : sorting.isDescending ? "descending" : "ascending";
  const className = column.align === "end" ? "num" : undefined;
  if (!column.sort || !onSort) {
    return (
      <div role="columnheader" class={className}>
        {column.title}
      </div>
    );
  }
  const startsDescending = column.align === "end";
  const next = !isOn ? { column: column.id, isDescending: startsDescending } : sorting.isDescending === startsDescending ? { column: column.id, isDescending: !startsDescending } : null;
  return (
    <div role="columnheader" class={className} aria-sort={order}>
      <button type="button" onClick={() => onSort(next)}>
        {column.title}
        {isOn ? (sorting.isDescending ? " ↓" : " ↑") : ""}
      </button>
    </div>
  );
}

function sortedRows<T>(rows: readonly T[], columns: readonly Column<T>[], sorting: Sorting | null): readonly T[] {
  const by = sorting === null ? undefined : columns.find((column) => column.id === sorting.column)?.sort;
  if (by === undefined || sorting === null) return rows;
  const sign = sorting.isDescending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const a = by(one);
    const b = by(other);
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return a < b ? -sign : a > b ? sign : 0;
  });
}
