/** Light, dark, or the system's theme; kept in this browser. */
import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const STORED = "slackwater.theme";

function stored(): Theme {
  const found = localStorage.getItem(STORED);
  return found === "light" || found === "dark" ? found : "auto";
}

export const theme = signal<Theme>(stored());

effect(() => {
  const chosen = theme.value;
  if (chosen === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(STORED);
  } else {
    document.documentElement.dataset.theme = chosen;
    localStorage.setItem(STORED, chosen);
  }
});

/** Rises when the colours change, also by the system: pictures on a canvas are drawn again. */
export const colours = signal(0);
effect(() => {
  theme.value;
  colours.value = colours.peek() + 1;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours.value += 1;
});

/** Return a token such as `--water` as a colour that a canvas takes. */
export function colour(token: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The nonce with which styles may be added to the page (`EditorView.cspNonce`); the service draws a new one for each page. */
export function cspNonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
}
