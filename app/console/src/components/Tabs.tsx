/** Tabs (arrow keys go between them), and segments that choose one of few. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export interface Tab {
  id: string;
  title: string;
  /** A number behind the title, such as how many there are. */
  count?: string | null;
}

export function Tabs({ label, tabs, active, onChange }: { label: string; tabs: readonly Tab[]; active: string; onChange: (id: string) => void }) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a phone not all of them are in sight.
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [active, tabs.length]);
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = tabs[(tabs.findIndex((tab) => tab.id === active) + step + tabs.length) % tabs.length]!;
    onChange(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <div class="tabs" ref={list} role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          id={`tab-${tab.id}`}
          type="button"
          role="tab"
          aria-selected={tab.id === active}
          aria-controls={`panel-${tab.id}`}
          tabIndex={tab.id === active ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.title}
          {tab.count && <span class="count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return (
    <div role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} class="stack">
      {children}
    </div>
  );
}

export function Segments<T extends string>({ label, options, value, onChange }: { label: string; options: readonly (readonly [T, string])[]; value: T; onChange: (value: T) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([id, title]) => (
        <button key={id} type="button" aria-pressed={id === value} onClick={() => onChange(id)}>
          {title}
        </button>
      ))}
    </div>
  );
}
