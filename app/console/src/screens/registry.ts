/**
 * Every screen there is. A folder below `screens/` is one screen; its `screen.ts` says where it stands, and is found here by itself.
 *
 * Who links to a screen asks `screenFor` first, so that no link leads nowhere.
 */
import type { ComponentType } from "preact";
import type { IconName } from "~/components/icons";
import { matched } from "~/router";
import type { Role } from "~/session";

export interface ScreenProps {
  /** Parameters of the path: of `/queries/:name` the name. */
  params: Record<string, string>;
}

export interface Screen {
  /** Below `/console`, such as `/queries/:name`. */
  path: string;
  title: string;
  /** Its page of the guide, below `/guide/`. */
  guide: string;
  /** Its entry in the navigation; absent: it is reached from elsewhere. */
  nav?: { icon: IconName; order: number };
  /** Who has a lower role does not see it. */
  role?: Role;
  /** Loads the code when it is first shown. */
  load: () => Promise<{ default: ComponentType<ScreenProps> }>;
}

const found = import.meta.glob<{ default: Screen | Screen[] }>("./*/screen.ts", { eager: true });

export const screens: readonly Screen[] = Object.values(found).flatMap((module) => module.default);

export const navigation: readonly Screen[] = screens.filter((screen) => screen.nav).sort((a, b) => a.nav!.order - b.nav!.order);

/** Return the screen of a path with its parameters; null: there is none. */
export function screenFor(path: string): { screen: Screen; params: Record<string, string> } | null {
  for (const screen of screens) {
    const params = matched(screen.path, path);
    if (params !== null) return { screen, params };
  }
  return null;
}
