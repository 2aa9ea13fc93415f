/** The head of a screen: where one is, what one may do there. It names the browser's tab. */
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { path } from "~/router";
import { screenFor } from "~/screens/registry";
import { Icon } from "./icons";

interface Props {
  title: string;
  crumbs?: ComponentChildren;
  badges?: ComponentChildren;
  actions?: ComponentChildren;
  /** The page of the guide for this part of the screen, below `/guide/`; absent: the screen's own. */
  guide?: string;
  children: ComponentChildren;
}

export function Page({ title, crumbs, badges, actions, guide, children }: Props) {
  const help = guide ?? screenFor(path.value)?.screen.guide;
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
        <div class="row wrap">
          {actions}
          {help !== undefined && (
            <a class="button quiet" href={`/guide/${help}`}>
              <Icon name="info" size={15} />
              Guide
            </a>
          )}
        </div>
      </div>
      {children}
    </>
  );
}
