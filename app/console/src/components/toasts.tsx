/** Short messages that something was done, or was not. They go by themselves; errors stay until they are closed. */
import { signal } from "@preact/signals";
import { ApiError } from "~/api/client";
import { Button, Note, type Tone } from "./basics";
import { CodeLink } from "./ErrorPanel";

interface Toast {
  id: number;
  tone: Tone;
  text: string;
  more?: string;
  /** Of an error. */
  code?: string;
}

const toasts = signal<Toast[]>([]);
let following = 0;

export function notify(text: string, tone: Tone = "good", more?: string, code?: string): void {
  const id = ++following;
  toasts.value = [...toasts.value, { id, tone, text, more, code }];
  if (tone !== "bad") setTimeout(() => dismiss(id), 5_000);
}

export function notifyError(error: unknown): void {
  if (error instanceof ApiError) notify(error.problem.detail, "bad", error.problem.cure, error.status > 0 ? error.problem.code : undefined);
  else notify((error as Error).message, "bad");
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {toasts.value.map((toast) => (
        <Note key={toast.id} tone={toast.tone}>
          <div class="row spread" style={{ alignItems: "flex-start" }}>
            <span>{toast.text}</span>
            <Button kind="quiet" small icon="close" aria-label="Close" onClick={() => dismiss(toast.id)} />
          </div>
          {toast.code && (
            <span class="small">
              <CodeLink code={toast.code} />
            </span>
          )}
          {toast.more && <span class="cure small">{toast.more}</span>}
        </Note>
      ))}
    </div>
  );
}
