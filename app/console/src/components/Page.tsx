/** The head of a screen: where one is, what one may do there. It names the browser's tab. */
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

export function Page({ title, crumbs, badges, actions, children }: { title: string; crumbs?: ComponentChildren; badges?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Slackwater`;
  }, [title]);
  return (
    <>
      <div class="page-head">
        <div>
          {crumbs && <div class="crumbs">{crumbs}</div>}
          <h1>
            {title}
            {badges}
          </h1>
        </div>
        {actions && <div class="row wrap">{actions}</div>}
      </div>
      {children}
    </>
  );
}
