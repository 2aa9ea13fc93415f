/** The frame: who is signed in, navigation, the screen of the address, messages. */
import { useEffect, useState } from "preact/hooks";
import type { ComponentType } from "preact";
import { api, ApiError } from "./api/client";
import { Empty, Skeleton } from "./components/basics";
import { ErrorPanel } from "./components/ErrorPanel";
import { Icon, Waves } from "./components/icons";
import { Palette, isPaletteOpen } from "./components/Palette";
import { Toasts } from "./components/toasts";
import { Page } from "./components/Page";
import { attention, overviewError, startOverview } from "./overview";
import { Link, path } from "./router";
import { navigation, screenFor, type Screen, type ScreenProps } from "./screens/registry";
import { forgetAll } from "./screens/sql/kept";
import { isLocked, key, may, me, role, signOut } from "./session";
import { SignIn } from "./SignIn";
import { theme, type Theme } from "./theme";

function leave(): void {
  forgetAll();
  signOut();
}

export function App() {
  const [error, setError] = useState<Error | null>(null);
  const [tries, setTries] = useState(0);
  const presented = key.value;

  useEffect(() => {
    let isOver = false;
    setError(null);
    api
      .get("/v1/me")
      .then((found) => {
        if (isOver) return;
        me.value = found;
        isLocked.value = false;
      })
      .catch((failure: Error) => {
        if (!isOver && !(failure instanceof ApiError && failure.status === 401)) setError(failure);
      });
    return () => {
      isOver = true;
    };
  }, [presented, tries]);

  const isKnown = me.value !== null;
  useEffect(() => (isKnown ? startOverview() : undefined), [isKnown, presented]);

  if (isLocked.value) return <SignIn />;
  if (error !== null)
    return (
      <main class="sign-in">
        <ErrorPanel error={error} retry={() => setTries(tries + 1)} />
      </main>
    );
  if (!isKnown) return <main class="sign-in"><Skeleton lines={3} /></main>;
  return (
    <>
      <a class="skip" href="#screen">
        Go to the content
      </a>
      <div class="frame">
        <Side />
        <main class="screen" id="screen" tabIndex={-1}>
          {overviewError.value !== null && overviewError.value instanceof ApiError && overviewError.value.status === 0 && (
            <div style={{ marginBottom: "14px" }}>
              <ErrorPanel error={overviewError.value} />
            </div>
          )}
          <Shown />
        </main>
      </div>
      {isPaletteOpen.value && <Palette />}
      <Toasts />
    </>
  );
}

function Side() {
  const here = screenFor(path.value)?.screen;
  const waiting = attention.value.length;
  return (
    <header class="side">
      <Link class="brand" to="/" aria-label="Slackwater">
        <Waves />
        <span class="label">Slackwater</span>
      </Link>
      <nav aria-label="Screens">
        <ul>
          {navigation
            .filter((screen) => screen.role === undefined || may(screen.role))
            .map((screen) => (
              <li key={screen.path}>
                <Link class="nav-item" to={screen.path} aria-current={here === screen ? "page" : undefined} title={screen.title}>
                  <Icon name={screen.nav!.icon} size={17} />
                  <span class="label">{screen.title}</span>
                  {screen.path === "/" && waiting > 0 && (
                    <span class="badge bad label" style={{ marginLeft: "auto" }}>
                      {waiting}
                    </span>
                  )}
                </Link>
              </li>
            ))}
        </ul>
      </nav>
      <div class="side-foot">
        <button type="button" class="nav-item" onClick={() => (isPaletteOpen.value = true)} title="Go to …">
          <Icon name="search" size={17} />
          <span class="label">Go to …</span>
          <kbd>Ctrl K</kbd>
        </button>
        <a class="nav-item" href="/docs" title="Requests">
          <Icon name="docs" size={17} />
          <span class="label">Requests</span>
        </a>
        <ThemeButton />
        {key.value !== null && (
          <button type="button" class="nav-item" onClick={leave} title="Sign out">
            <Icon name="leave" size={17} />
            <span class="label">Sign out</span>
          </button>
        )}
        {me.value?.name && (
          <div class="side-who ellipsis">
            {me.value.name} · {role.value}
          </div>
        )}
      </div>
    </header>
  );
}

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const THEMES: Record<Theme, string> = { auto: "System theme", light: "Light", dark: "Dark" };

function ThemeButton() {
  const chosen = theme.value;
  return (
    <button type="button" class="nav-item" onClick={() => (theme.value = NEXT[chosen])} title="Colours">
      <Icon name={chosen === "auto" ? "auto" : chosen === "light" ? "sun" : "moon"} size={17} />
      <span class="label">
        <span class="unseen">Colours: </span>
        {THEMES[chosen]}
      </span>
    </button>
  );
}

const loaded = new Map<Screen, ComponentType<ScreenProps>>();

function Shown() {
  const found = screenFor(path.value);
  const [, setTick] = useState(0);
  const [failure, setFailure] = useState<Error | null>(null);
  const screen = found?.screen;

  useEffect(() => {
    setFailure(null);
    if (screen === undefined || loaded.has(screen)) return;
    screen
      .load()
      .then((module) => {
        loaded.set(screen, module.default);
        setTick((before) => before + 1);
      })
      .catch((error: Error) => setFailure(new Error(`This screen could not be loaded: ${error.message}. If the service was updated, load the page again.`)));
  }, [screen]);

  if (found === null || (found.screen.role !== undefined && !may(found.screen.role)))
    return (
      <Page title={found === null ? "Nothing here" : found.screen.title}>
        <Empty title={found === null ? "There is no such screen" : `This screen is for keys of the role ${found.screen.role}`}>
          <p>
            <Link to="/">Go to the overview</Link>
          </p>
        </Empty>
      </Page>
    );
  if (failure !== null) return <ErrorPanel error={failure} />;
  const Screen = loaded.get(found.screen);
  // A screen of another name is another screen: nothing of the one before stays.
  return Screen === undefined ? <Skeleton lines={8} /> : <Screen key={path.value} params={found.params} />;
}
