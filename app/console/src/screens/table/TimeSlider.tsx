/** Event time as a slider: from where the table's history begins to where its stream time stands. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RowsAnswer } from "~/api/types";
import { Button } from "~/components/basics";
import { moment, span } from "~/format";

const STEPS = 1_000;
/** Rows are asked for when the slider has rested so long. */
const REST_MS = 120;

export function TimeSlider({ answer, asOf, onChange }: { answer: RowsAnswer; asOf: number | null; onChange: (ms: number | null) => void }) {
  const first = answer.history_starts_at_ms;
  const last = answer.stream_time_ms;
  const [moved, setMoved] = useState<number | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setMoved(null), [asOf]);
  if (first === null || last === null || last <= first)
    return first === null ? <p class="small muted">This table keeps its latest rows alone; a versioned one can be read as of any time of its history.</p> : null;

  const shown = moved ?? asOf ?? last;
  const step = Math.max(1, Math.round((last - first) / STEPS));
  const move = (ms: number): void => {
    const to = ms >= last ? null : Math.max(ms, first);
    setMoved(to ?? last);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(to), REST_MS);
  };
  return (
    <div class="time-slider">
      <div class="row wrap spread">
        <label class="row" for="as-of">
          <span class="muted small">As of event time</span>
          <strong>{asOf === null && moved === null ? "now" : moment(shown)}</strong>
          {(asOf !== null || moved !== null) && shown < last && <span class="muted small">{span(last - shown)} before stream time</span>}
        </label>
        <span class="row">
          <input
            class="input exact-time"
            type="datetime-local"
            step={1}
            aria-label="Exact event time, UTC"
            value={new Date(shown).toISOString().slice(0, 19)}
            min={new Date(first).toISOString().slice(0, 19)}
            max={new Date(last).toISOString().slice(0, 19)}
            onChange={(event) => {
              const ms = Date.parse(`${event.currentTarget.value}Z`);
              if (!Number.isNaN(ms)) move(ms);
            }}
          />
          <Button small disabled={asOf === null && moved === null} onClick={() => move(last)}>
            Now
          </Button>
        </span>
      </div>
      <input id="as-of" type="range" min={first} max={last} step={step} value={shown} aria-valuetext={moment(shown)} onInput={(event) => move(Number(event.currentTarget.value))} />
      <div class="row spread small muted">
        <span title="Before this time only a key's latest version can answer">
          history begins <span class="nowrap">{moment(first)}</span>
        </span>
        <span class="time-end">
          stream time <span class="nowrap">{moment(last)}</span>
        </span>
      </div>
    </div>
  );
}
