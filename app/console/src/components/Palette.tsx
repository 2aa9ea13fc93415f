/** Ctrl K: go to a screen, a query or a relation by a part of its name. */
import { signal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { overview } from "~/overview";
import { navigate, pathOf } from "~/router";
import { navigation, screenFor } from "~/screens/registry";
import { may } from "~/session";
import { Dialog } from "./Dialog";
import { Icon, type IconName } from "./icons";

export const isPaletteOpen = signal(false);
const SHOWN = 50;

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    isPaletteOpen.value = !isPaletteOpen.peek();
  }
});

interface Target {
  name: string;
  what: string;
  icon: IconName;
  to: string;
}

function targets(): Target[] {
  const found: Target[] = navigation
    .filter((screen) => screen.role === undefined || may(screen.role))
    .map((screen) => ({ name: screen.title, what: "screen", icon: screen.nav!.icon, to: screen.path }));
  for (const query of overview.peek()?.queries ?? []) found.push({ name: query.name, what: "query", icon: "query", to: pathOf("/queries/:name", { name: query.name }) });
  for (const relation of overview.peek()?.relations ?? []) {
    found.push({ name: relation.name, what: relation.kind, icon: relation.kind, to: pathOf(`/${relation.kind}s/:name`, { name: relation.name }) });
  }
  return found.filter((target) => screenFor(target.to) !== null);
}

export function Palette() {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const all = useMemo(targets, []);
  const wanted = text.trim().toLowerCase();
  const found = all
    .filter((target) => target.name.toLowerCase().includes(wanted))
    .sort((a, b) => Number(b.name.toLowerCase().startsWith(wanted)) - Number(a.name.toLowerCase().startsWith(wanted)))
    .slice(0, SHOWN);
  const active = Math.min(chosen, found.length - 1);
  const close = (): void => {
    isPaletteOpen.value = false;
  };
  const go = (target: Target | undefined): void => {
    if (target === undefined) return;
    close();
    navigate(target.to);
  };
  return (
    <Dialog title="Go to" isUntitled class="palette" onClose={close}>
      <input
        class="input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `palette-${active}` : undefined}
        aria-label="Go to a screen, a query, a stream or a table"
        placeholder="Go to a screen, a query, a stream or a table"
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            const next = active + (event.key === "ArrowDown" ? 1 : -1);
            setChosen(Math.max(0, Math.min(found.length - 1, next)));
            document.getElementById(`palette-${next}`)?.scrollIntoView({ block: "nearest" });
          } else if (event.key === "Enter") {
            event.preventDefault();
            go(found[active]);
          }
        }}
      />
      <ul id="palette-list" role="listbox" aria-label="Found">
        {found.map((target, index) => (
          <li key={target.what + target.name} id={`palette-${index}`} role="option" aria-selected={index === active} onClick={() => go(target)} onMouseMove={() => setChosen(index)}>
            <Icon name={target.icon} />
            <span class="ellipsis">{target.name}</span>
            <span class="muted">{target.what}</span>
          </li>
        ))}
        {found.length === 0 && <li role="option" aria-selected="false" aria-disabled="true" class="muted">Nothing has that in its name</li>}
      </ul>
    </Dialog>
  );
}
