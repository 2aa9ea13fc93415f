/** Event time as a slider: from where the table's history begins to its stream time. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RowsAnswer } from "~/api/types";
import { Button } from "~/components/basics";
import { moment, span } from "~/format";

const STEPS = 1_000;
/** Rows are asked for after the slider has rested for this time. */
const REST_MS = 120;

interface Props {
  answer: RowsAnswer;
  asOf: number | null;
  onChange: (ms: number | null) => void;
}

export function TimeSlider({ answer, asOf, onChange }: Props) {
  const first = answer.history_starts_at_ms;
  const streamTime = answer.stream_time_ms;
  const [moved, setMoved] = useState<number | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setMoved(null), [asOf]);
  if (first === null || streamTime === null)
    return first === null ? <p class="small muted">This table keeps its latest rows alone; a versioned one can be read as of any time of its history.</p> : null;

  // A time that was asked for stands on the slider, wherever it is.
  const start = Math.min(first, asOf ?? first);
  const last = Math.max(streamTime, asOf ?? streamTime);
  if (last <= start) return null;
  const shown = moved ?? asOf ?? last;
  const isNow = asOf === null && (moved === null || moved >= last);
  const step = Math.max(1, Math.round((last - start) / STEPS));
  const settle = (to: number | null): void => {
    setMoved(to);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setMoved(null);
      onChange(to);
    }, REST_MS);
  };
  return (
    <div class="time-slider">
      <div class="row wrap spread">
        <label class="row" for="as-of">
          <span class="muted small">As of event time</span>
          <strong>{isNow ? "now" : moment(shown)}</strong>
          {!isNow && shown < streamTime && <span class="muted small">{span(streamTime - shown)} before stream time</span>}
        </label>
        <span class="row">
          <input
            class="input exact-time"
            type="datetime-local"
            step={1}
            aria-label="Exact event time, UTC"
            value={new Date(shown).toISOString().slice(0, 19)}
            onChange={(event) => {
              const ms = Date.parse(`${event.currentTarget.value}Z`);
              if (!Number.isNaN(ms)) settle(ms);
            }}
          />
          <Button small disabled={asOf === null && moved === null} onClick={() => settle(null)}>
            Now
          </Button>
        </span>
      </div>
      <input
        id="as-of"
        type="range"
        min={start}
        max={last}
        step={step}
        value={shown}
        aria-valuetext={isNow ? "now" : moment(shown)}
        onInput={(event) => {
          const ms = Number(event.currentTarget.value);
          settle(ms + step > last ? null : ms);
        }}
      />
      <div class="row spread small muted">
        <span title="Before this time only a key's latest version can answer">
          history begins <span class="nowrap">{moment(first)}</span>
        </span>
        <span class="time-end">
          stream time <span class="nowrap">{moment(streamTime)}</span>
        </span>
      </div>
      {!isNow && shown > streamTime && <p class="small muted">Stream time is at {moment(streamTime)}: rows after that time can still change.</p>}
      {!isNow && shown < first && <p class="small muted">This is before the history: keys that changed since then are not shown.</p>}
    </div>
  );
}
