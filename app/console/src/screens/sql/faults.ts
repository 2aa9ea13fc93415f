/** Faults of statements as marks in the editor: the service says line, column, and the line itself with marks below. */
import type { Diagnostic } from "@codemirror/lint";
import type { Text } from "@codemirror/state";
import type { Problem } from "~/api/types";

/** Faults of requests that say nothing of the text: whoever runs the statement is told, typing is not disturbed. */
export function marksOf(problem: Problem, document: Text): Diagnostic[] {
  return problem.errors.flatMap((fault) => {
    const place = fault.place;
    if (place == null || place.line > document.lines) return [];
    const line = document.line(place.line);
    const from = line.from + utf16(line.text, place.column - 1);
    const marks = place.excerpt.split("\n").at(-1) ?? "";
    const length = marks.trim().length;
    const to = Math.min(line.from + utf16(line.text, place.column - 1 + Math.max(length, 1)), line.to);
    const isAtEnd = to <= from;
    return [
      {
        from: isAtEnd ? Math.max(from - 1, line.from) : from,
        to: Math.max(to, from),
        severity: "error" as const,
        source: fault.code,
        message: fault.detail.replace(/^line \d+, column \d+: /, ""),
      },
    ];
  });
}

/** The service counts characters, an editor UTF-16 units: those beyond the basic plane are two. */
function utf16(text: string, characters: number): number {
  let units = 0;
  for (const sign of text) {
    if (characters-- <= 0) break;
    units += sign.length;
  }
  return units;
}
