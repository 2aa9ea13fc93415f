/** Fields of forms: a name, what is entered, what is wrong with it. */
import type { ComponentChildren } from "preact";
import { CodeLink, plain } from "~/components/ErrorPanel";
import type { ProblemItem, Warning } from "~/api/types";
import { Note } from "~/components/basics";

export function Field({ label, hint, problems = [], children, class: more }: { label: string; hint?: ComponentChildren; problems?: readonly { detail: string }[]; children: ComponentChildren; class?: string }) {
  return (
    <div class={`field ${more ?? ""}`}>
      <label class="new-label">
        <span>{label}</span>
        {children}
      </label>
      {problems.map((problem) => (
        <span key={problem.detail} class="fault">
          {plain(problem.detail)}
        </span>
      ))}
      {hint !== undefined && problems.length === 0 && <span class="new-hint">{hint}</span>}
    </div>
  );
}

export function Text({ value, onChange, placeholder, invalid, mono, list }: { value: string; onChange: (value: string) => void; placeholder?: string; invalid?: boolean; mono?: boolean; list?: string }) {
  return (
    <input class={`input${mono ? " mono" : ""}`} value={value} placeholder={placeholder} aria-invalid={invalid ? "true" : undefined} list={list} spellcheck={false} autocomplete="off" onInput={(event) => onChange(event.currentTarget.value)} />
  );
}

export function LongText({ label, value, onChange, placeholder, invalid }: { label?: string; value: string; onChange: (value: string) => void; placeholder?: string; invalid?: boolean }) {
  return <textarea class="input mono" rows={4} aria-label={label} value={value} placeholder={placeholder} aria-invalid={invalid ? "true" : undefined} spellcheck={false} autocomplete="off" onInput={(event) => onChange(event.currentTarget.value)} />;
}

export function Choose<T extends string>({ value, options, onChange, label }: { value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void; label?: string }) {
  return (
    <select class="input" aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
      {options.map(([id, title]) => (
        <option key={id} value={id}>
          {title}
        </option>
      ))}
    </select>
  );
}

/** What is wrong where no single field is to blame, one below the other. */
export function Faults({ problems, class: more }: { problems: readonly ProblemItem[]; class?: string }) {
  return (
    <>
      {problems.map((problem) => (
        <p key={problem.pointer + problem.detail} class={`late small ${more ?? ""}`}>
          {plain(problem.detail)}
        </p>
      ))}
    </>
  );
}

/** Codes of the console's own findings: the service does not explain them. */
const OWN = new Set<string>(["missing", "failed"]);

/** What is wrong or may surprise, each with what helps. */
export function Findings({ problems, warnings }: { problems: readonly ProblemItem[]; warnings: readonly Warning[] }) {
  return (
    <>
      {problems.length > 0 && (
        <Note tone="bad">
          <strong>{problems.length === 1 ? "One thing is missing or wrong" : `${problems.length} things are missing or wrong`}</strong>
          <ul>
            {problems.map((problem) => (
              <li key={problem.pointer + problem.code + problem.detail}>
                {plain(problem.detail)} {!OWN.has(problem.code) && <CodeLink code={problem.code} />}
              </li>
            ))}
          </ul>
        </Note>
      )}
      {warnings.map((warning) => (
        <Note key={warning.pointer + warning.code} tone="warn">
          <strong>{plain(warning.detail)}</strong>
          <span class="cure">{plain(warning.cure)}</span>
        </Note>
      ))}
    </>
  );
}
