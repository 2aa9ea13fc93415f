/** Asks for an API key. It is kept in this tab alone, and forgotten when the tab is closed. */
import { useState } from "preact/hooks";
import { Button, Note } from "./components/basics";
import { Waves } from "./components/icons";
import { refusal, signIn } from "./session";

export function SignIn() {
  const [text, setText] = useState("");
  return (
    <main class="sign-in">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim() !== "") signIn(text.trim());
        }}
      >
        <div class="row">
          <Waves size={30} />
          <h1>Slackwater</h1>
        </div>
        <p class="muted">This service asks for an API key. It stays in this tab and is forgotten when you close it.</p>
        <label class="field">
          <span>API key or token</span>
          <input
            class="input mono"
            type="password"
            autocomplete="off"
            spellcheck={false}
            autofocus
            placeholder="sw_…"
            value={text}
            aria-invalid={refusal.value !== null}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        {refusal.value !== null && <Note tone="bad">{refusal.value}</Note>}
        <Button kind="primary" type="submit" disabled={text.trim() === ""}>
          Sign in
        </Button>
        <p class="small muted">
          An administrator makes one: <code>slackwater keys create NAME --role read</code>
        </p>
      </form>
    </main>
  );
}
