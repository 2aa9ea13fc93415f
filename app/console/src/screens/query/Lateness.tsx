/** How late records come, and what another grace would have done: a curve, a slider, the preview of the edit, and the edit one click away. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive, type Live } from "~/api/live";
import type { AdviceItem, EditPreview, Lateness, OneQuery, SettingAdvice, Validation } from "~/api/types";
import { Button, Empty, Note, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { useSettled, useWidth } from "~/components/hooks";
import { RelationLink } from "~/components/links";
import { Segments } from "~/components/Tabs";
import { notify } from "~/components/toasts";
import { count, durationText, moment, NONE, percent, plural, span, words } from "~/format";
import { may } from "~/session";

export function LatenessTab({ query, lateness, onApplied }: { query: OneQuery; lateness: Live<Lateness>; onApplied: () => void }) {
  const [chosen, setChosen] = useState(0);
  if (lateness.data === null) return lateness.error === null ? <Skeleton /> : <ErrorPanel error={lateness.error} retry={lateness.refresh} />;
  const { settings, inputs } = lateness.data;
  const measured = settings.filter((setting) => setting.count > 0);
  const setting = measured[Math.min(chosen, measured.length - 1)];
  return (
    <>
      {setting === undefined ? (
        <div class="panel">
          <Empty title={settings.length === 0 ? "Nothing in this query judges lateness" : "No record has been measured yet"}>
            <p>{settings.length === 0 ? "It has no join with a grace and no windows." : "The curve appears once records have been read."}</p>
          </Empty>
        </div>
      ) : (
        <>
          {measured.length > 1 && (
            <div class="scroll-x" tabIndex={0}>
              <Segments label="Setting" options={measured.map((one, index) => [String(index), nameOf(one)] as const)} value={String(measured.indexOf(setting))} onChange={(id) => setChosen(Number(id))} />
            </div>
          )}
          <OneSetting key={setting.pointer + (setting.relation ?? "")} query={query} setting={setting} onApplied={onApplied} />
        </>
      )}
      <Panel id="lateness-inputs" title="How late records come" hint="How far each is behind stream time when it comes">
        <div class="scroll-x" tabIndex={0}>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Input</th>
                <th scope="col" class="num">Records</th>
                <th scope="col" class="num">Half within</th>
                <th scope="col" class="num">90 % within</th>
                <th scope="col" class="num">99 % within</th>
                <th scope="col" class="num">99.9 % within</th>
                <th scope="col" class="num">Latest</th>
              </tr>
            </thead>
            <tbody>
              {inputs.map((input) => (
                <tr key={input.input}>
                  <td>
                    {input.input} {input.relation !== input.input && <span class="muted">({input.relation})</span>}
                  </td>
                  <td class="num">{count(input.count)}</td>
                  <td class="num">{span(input.quantiles.p50)}</td>
                  <td class="num">{span(input.quantiles.p90)}</td>
                  <td class="num">{span(input.quantiles.p99)}</td>
                  <td class="num">{span(input.quantiles.p999)}</td>
                  <td class="num">{input.count > 0 ? span(input.max_ms) : NONE}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
    </>
  );
}

function nameOf(setting: SettingAdvice): string {
  if (setting.relation !== null) return `history retention of ${setting.relation}`;
  return setting.operator === null ? setting.pointer : `grace of ${setting.operator}`;
}

function OneSetting({ query, setting, onApplied }: { query: OneQuery; setting: SettingAdvice; onApplied: () => void }) {
  const advice = useMemo(() => telling(setting.advice), [setting.advice]);
  const inForce = Math.max(0, advice.findIndex((item) => item.current));
  const [index, setIndex] = useState<number | null>(null);
  const item = advice[Math.min(index ?? inForce, advice.length - 1)]!;
  const isGrace = setting.relation === null;
  const what = isGrace ? "grace" : "history retention";
  return (
    <Panel id="lateness-curve" title={`Share of records that would have been late, by ${what}`} hint={`${plural(setting.count, "record")} measured, ${nameOf(setting)}`}>
      <div class="stack">
        <Curve advice={advice} chosen={item} />
        <label class="field">
          <span class="unseen">{what}</span>
          <input
            type="range"
            min={0}
            max={advice.length - 1}
            step={1}
            value={advice.indexOf(item)}
            aria-label={`What if: ${what}`}
            aria-valuetext={`${span(item.value_ms)}: ${count(item.late_count)} late`}
            onInput={(event) => setIndex(Number(event.currentTarget.value))}
          />
        </label>
        <div class="grace-facts">
          <div>
            <div class="muted small">{item.current ? `${what}, in force` : `With this ${what}`}</div>
            <div class="chosen-grace">{span(item.value_ms)}</div>
          </div>
          <div>
            <div class="muted small">would have been late</div>
            <div class="value">
              {item.exact ? "" : "at most "}
              {count(item.late_count)}
            </div>
            <div class="muted small">{percent(item.late_share, 2)} of all</div>
          </div>
          {isGrace && (
            <div>
              <div class="muted small">time a record waits</div>
              <div class="value">{span(item.added_wait_ms)}</div>
              <div class="muted small">of event time, longer than without</div>
            </div>
          )}
        </div>
        {!setting.exact && <p class="small muted">A session may still take some of the records that count as late here.</p>}
        {setting.relation !== null ? (
          <p class="small muted">
            It stands in the definition of the table <RelationLink name={setting.relation} kind="table" />, and does not change while a query reads the table: what such a query keeps was kept by the retention in
            force. Delete its readers first, or register the table again under another name.
          </p>
        ) : (
          !item.current && <Edit query={query} setting={setting} item={item} onApplied={() => { setIndex(null); onApplied(); }} />
        )}
      </div>
    </Panel>
  );
}

/** Return a definition with another value at a JSON pointer. */
export function replaced(definition: unknown, pointer: string, value: unknown): unknown {
  const [first, ...rest] = pointer.split("/").slice(1);
  if (first === undefined) return value;
  const inner = rest.length === 0 ? "" : `/${rest.join("/")}`;
  if (Array.isArray(definition)) return definition.map((one, index) => (index === Number(first) ? replaced(one, inner, value) : one));
  const object = definition as Record<string, unknown>;
  return { ...object, [first]: replaced(object[first], inner, value) };
}

function Edit({ query, setting, item, onApplied }: { query: OneQuery; setting: SettingAdvice; item: AdviceItem; onApplied: () => void }) {
  const [isReleasing, setReleasing] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const wanted = useSettled(item.value_ms);
  const edited = useMemo(() => {
    const { desired_state: _, ...definition } = query.definition as Record<string, unknown>;
    return replaced(definition, setting.pointer, durationText(wanted));
  }, [query.version, setting.pointer, wanted]);
  const preview = useLive((signal) => api.post("/v1/validations", { body: edited, signal }), null, [query.version, setting.pointer, wanted]);
  useEffect(() => setError(null), [wanted]);
  const apply = (): void => {
    setBusy(true);
    api
      .put("/v1/queries/{name}", { path: { name: query.name }, query: { flush: isReleasing ? "now" : null }, body: edited, headers: { "if-match": `"${query.version}"` } })
      .then(() => {
        notify(`The grace of ${setting.operator ?? query.name} is ${span(wanted)} from the next launch on.`);
        onApplied();
      })
      .catch((failure: Error) => {
        setError(failure);
        setBusy(false);
      });
  };
  const edit = preview.data?.edit ?? null;
  return (
    <section aria-label="The edit" class="stack edit">
      <h3>What the edit would do</h3>
      {preview.error !== null && <ErrorPanel error={preview.error} />}
      {preview.data === null ? preview.error === null && <Skeleton lines={2} /> : <Preview validation={preview.data} />}
      {error !== null && <ErrorPanel error={error} />}
      {edit !== null && preview.data!.valid && may("write") && (
        <div class="row wrap">
          <Button kind="primary" disabled={isBusy || wanted !== item.value_ms || edit.kind === "needs_new_state" || edit.kind === "no_op"} onClick={apply}>
            Set the grace to {span(item.value_ms)}
          </Button>
          <label class="row small">
            <input type="checkbox" checked={isReleasing} onChange={(event) => setReleasing(event.currentTarget.checked)} />
            Emit at once what is due, not with the next record
          </label>
        </div>
      )}
    </section>
  );
}

const KINDS: Record<EditPreview["kind"], string> = {
  no_op: "Nothing would change.",
  in_place: "In place: the query goes on with its state.",
  repartition: "In place; the next launch shares the state out among another number of tasks.",
  needs_new_state: "It needs new state: the query has to start again from the beginning.",
};

export function Preview({ validation }: { validation: Validation }) {
  if (!validation.valid)
    return (
      <Note tone="bad">
        {validation.problems.map((problem) => (
          <span key={problem.pointer + problem.code}>
            <code>{problem.pointer}</code> {problem.detail}
          </span>
        ))}
      </Note>
    );
  const { edit } = validation;
  return (
    <>
      {edit !== null && (
        <>
          <p>
            <strong>{KINDS[edit.kind]}</strong> {edit.changes.map((change) => change.reason).join(" ")}
          </p>
          {edit.effects.length > 0 ? (
            <table class="plain">
              <thead>
                <tr>
                  <th scope="col">What happens</th>
                  <th scope="col">Where</th>
                  <th scope="col" class="num">To how many</th>
                  <th scope="col">Times</th>
                </tr>
              </thead>
              <tbody>
                {edit.effects.map((effect) => (
                  <tr key={effect.pointer + effect.effect + effect.operator}>
                    <td>{words(effect.effect)}</td>
                    <td>{effect.operator ?? NONE}</td>
                    <td class="num">{effect.at_least === effect.at_most ? count(effect.at_least) : `${count(effect.at_least)} to ${count(effect.at_most)}`}</td>
                    <td>{effect.from_ms === null ? NONE : `${moment(effect.from_ms)} to ${moment(effect.to_ms)}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            edit.kind !== "no_op" && <p class="muted">Nothing that waits or is kept is touched by it.</p>
          )}
        </>
      )}
      {validation.warnings.map((warning) => (
        <Note key={warning.pointer + warning.code} tone="warn">
          <span>{warning.detail}</span>
          <span class="cure">{warning.cure}</span>
        </Note>
      ))}
    </>
  );
}

const LEFT = 50;
const BOTTOM = 26;
const HEIGHT = 210;
const TOP = 14;

/** The least difference that is worth a point of its own, as a share of the whole. */
const STEP = 0.012;

/** Leave out values that say what the one before them says: from milliseconds to minutes a curve is often flat. */
function telling(advice: readonly AdviceItem[]): readonly AdviceItem[] {
  const most = Math.max(...advice.map((item) => item.late_share));
  const kept: AdviceItem[] = [];
  advice.forEach((item, index) => {
    const before = kept.at(-1);
    const isLast = index === advice.length - 1;
    if (before === undefined || item.current || isLast || before.late_share - item.late_share > most * STEP) kept.push(item);
  });
  return kept;
}

function Curve({ advice, chosen }: { advice: readonly AdviceItem[]; chosen: AdviceItem }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const most = Math.max(...advice.map((item) => item.late_share), 0.0001);
  const least = Math.min(...advice.flatMap((item) => (item.value_ms > 0 ? [item.value_ms] : [])));
  // Graces lie between milliseconds and days: their logarithm, beside zero, which has none.
  const position = (ms: number): number => (ms > 0 ? Math.log10(ms / least) + 0.5 : 0);
  const widest = Math.max(...advice.map((item) => position(item.value_ms)), 0.5);
  const end = Math.max(width - 12, LEFT + 40);
  const x = (ms: number): number => LEFT + ((end - LEFT) * position(ms)) / widest;
  const y = (share: number): number => TOP + (HEIGHT - TOP - BOTTOM) * (1 - share / most);
  const floor = y(0);
  let line = "";
  advice.forEach((item, index) => {
    line += index === 0 ? `M${x(item.value_ms)} ${y(item.late_share)}` : `H${x(item.value_ms)}V${y(item.late_share)}`;
  });
  line += `H${end}`;
  let free = LEFT - 1;
  const labels = advice.filter((item) => {
    if (x(item.value_ms) < free) return false;
    free = x(item.value_ms) + 58;
    return true;
  });
  const current = advice.find((item) => item.current);
  return (
    <div ref={place}>
      <svg class="curve-chart" width={width} height={HEIGHT} role="img" aria-label={`Late share by value: ${advice.map((item) => `${span(item.value_ms)} ${percent(item.late_share, 2)}`).join(", ")}`}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line x1={LEFT} x2={end} y1={y(most * part)} y2={y(most * part)} stroke="var(--line)" />
            <text x={LEFT - 8} y={y(most * part) + 4} text-anchor="end">{percent(most * part, most < 0.02 ? 2 : 0)}</text>
          </g>
        ))}
        <path d={`${line}V${floor}H${LEFT}Z`} fill="var(--late)" fill-opacity=".1" />
        <path d={line} fill="none" stroke="var(--late)" stroke-width="2" stroke-linejoin="round" />
        {labels.map((item) => (
          <text key={item.value_ms} x={x(item.value_ms)} y={HEIGHT - 6} text-anchor={item.value_ms === 0 ? "start" : "middle"}>
            {item.value_ms === 0 ? "0" : span(item.value_ms)}
          </text>
        ))}
        {current !== undefined && (
          <g>
            <line x1={x(current.value_ms)} x2={x(current.value_ms)} y1={TOP} y2={floor} stroke="var(--clock)" stroke-width="1.5" stroke-dasharray="4 3" />
            <text x={x(current.value_ms) + (x(current.value_ms) > width / 2 ? -6 : 6)} y={TOP + 10} text-anchor={x(current.value_ms) > width / 2 ? "end" : "start"} style={{ fill: "var(--clock)" }}>in force</text>
          </g>
        )}
        <circle cx={x(chosen.value_ms)} cy={y(chosen.late_share)} r="5.5" fill="var(--panel)" stroke="var(--accent)" stroke-width="2.5" />
      </svg>
    </div>
  );
}
