/** A dialog that keeps the focus until it is closed; Escape closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  footer?: ComponentChildren;
  wide?: boolean;
  class?: string;
  /** The title is for screen readers only. */
  isUntitled?: boolean;
}

export function Dialog({ title, onClose, children, footer, wide, class: more, isUntitled }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    element.showModal();
    return () => element.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={["dialog", wide && "wide", more].filter(Boolean).join(" ")}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      {isUntitled ? (
        children
      ) : (
        <>
          <header>
            <h2>{title}</h2>
          </header>
          <div class="body">{children}</div>
          {footer && <footer>{footer}</footer>}
        </>
      )}
    </dialog>
  );
}
