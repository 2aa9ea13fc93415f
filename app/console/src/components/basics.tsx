/** Buttons, badges, notes, panels, empty and loading states. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { words } from "~/format";
import { Icon, Waves, type IconName } from "./icons";

type ButtonProps = {
  kind?: "primary" | "danger" | "quiet";
  small?: boolean;
  icon?: IconName;
  /** Solid colour: the one act of a dialog. */
  solid?: boolean;
  children?: ComponentChildren;
} & Omit<JSX.IntrinsicElements["button"], "icon" | "size">;

export function Button({ kind, small, icon, solid, children, class: more, ...rest }: ButtonProps) {
  const classes = ["button", kind, small && "small", solid && "solid", icon && children == null && "icon", more].filter(Boolean).join(" ");
  return (
    <button type="button" {...rest} class={classes}>
      {icon && <Icon name={icon} size={15} />}
      {children}
    </button>
  );
}

export type Tone = "good" | "bad" | "warn" | "water" | "neutral";

export function Badge({ tone = "neutral", dot, moving, title, children }: { tone?: Tone; dot?: boolean; moving?: boolean; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}${moving ? " is-moving" : ""}`} title={title}>
      {dot && <span class="dot" />}
      {children}
    </span>
  );
}

const STATES: Record<string, [Tone, boolean]> = {
  running: ["good", false],
  starting: ["water", true],
  stopping: ["neutral", true],
  backoff: ["warn", true],
  failed: ["bad", false],
};

/** A query's state; what it does inside of it stands behind, such as `starting · restoring`. */
export function StateBadge({ state, phase, unreachable }: { state: string; phase?: string | null; unreachable?: boolean }) {
  const [tone, moving] = STATES[state] ?? ["neutral", false];
  if (unreachable) return <Badge tone="bad" dot title="Its driver has not been heard of">unreachable</Badge>;
  return (
    <Badge tone={tone} dot moving={moving}>
      {state === "backoff" ? "retrying" : state}
      {phase && <span class="phase">· {words(phase)}</span>}
    </Badge>
  );
}

export function Note({ tone = "neutral", children }: { tone?: Tone; children: ComponentChildren }) {
  const icon = tone === "bad" ? "error" : tone === "warn" ? "warning" : tone === "good" ? "good" : "info";
  return (
    <div class={`note ${tone}`} role={tone === "bad" ? "alert" : undefined}>
      <Icon name={icon} size={17} />
      <div class="grow stack" style={{ gap: "3px" }}>
        {children}
      </div>
    </div>
  );
}

export function Panel({ title, hint, actions, children, flush, id }: { title?: ComponentChildren; hint?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; flush?: boolean; id?: string }) {
  return (
    <section class="panel" aria-labelledby={title !== undefined && id ? `${id}-title` : undefined}>
      {title !== undefined && (
        <header>
          <div>
            <h2 id={id && `${id}-title`}>{title}</h2>
            {hint && <div class="hint">{hint}</div>}
          </div>
          {actions && <div class="row wrap">{actions}</div>}
        </header>
      )}
      {flush ? children : <div class="body">{children}</div>}
    </section>
  );
}

export function Empty({ title, children, icon }: { title: string; children?: ComponentChildren; icon?: IconName }) {
  return (
    <div class="empty">
      {icon ? <Icon name={icon} size={30} /> : <Waves size={34} />}
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Skeleton({ lines = 5 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <i key={line} style={{ width: `${92 - ((line * 23) % 50)}%` }} />
      ))}
    </div>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isDone, setDone] = useState(false);
  return (
    <Button
      kind="quiet"
      small
      icon={isDone ? "good" : "copy"}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1_500);
        });
      }}
    >
      {isDone ? "Copied" : label}
    </Button>
  );
}

export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {items.map(([name, value]) => (
        <>
          <dt key={`${name}-name`}>{name}</dt>
          <dd key={name}>{value}</dd>
        </>
      ))}
    </dl>
  );
}

export function Tile({ name, value, more, children }: { name: string; value: ComponentChildren; more?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="tile">
      <div class="name">{name}</div>
      <div class="value">{value}</div>
      {more !== undefined && <div class="more">{more}</div>}
      {children}
    </div>
  );
}
