/** Every setting in force, and where its value comes from. */
import { useState } from "preact/hooks";
import { api } from "~/api/client";
import { useLive } from "~/api/live";
import { Badge, Empty, Panel, Skeleton } from "~/components/basics";
import { ErrorPanel } from "~/components/ErrorPanel";
import { Segments } from "~/components/Tabs";
import { plural } from "~/format";

type Which = "all" | "changed";

export function Settings() {
  const found = useLive((signal) => api.get("/v1/settings", { signal }), null, []);
  const [which, setWhich] = useState<Which>("all");
  const [text, setText] = useState("");
  if (found.data === null) return found.error === null ? <Skeleton lines={10} /> : <ErrorPanel error={found.error} retry={found.refresh} />;
  const wanted = text.trim().toLowerCase();
  const shown = found.data.settings.filter((each) => (which === "all" || each.origin !== "default") && (each.name.includes(wanted) || each.variable.toLowerCase().includes(wanted)));
  return (
    <>
      <div class="row wrap">
        <Segments<Which>
          label="Which"
          value={which}
          options={[
            ["all", "All"],
            ["changed", "Set by you"],
          ]}
          onChange={setWhich}
        />
        <input class="input system-find" type="search" aria-label="Find a setting" placeholder="Find a setting" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      <Panel flush id="settings" title="Settings" hint={`${plural(shown.length, "setting")} of the service that answers; they change with its next start. Drivers elsewhere have their own.`}>
        {shown.length === 0 ? (
          <Empty title="There is no such setting" icon="search" />
        ) : (
          <div class="body scroll-x" tabIndex={0} role="region" aria-label="Values of settings">
            <table class="plain">
              <thead>
                <tr>
                  <th>Setting</th>
                  <th>Value</th>
                  <th>From</th>
                  <th>Variable</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((each) => (
                  <tr key={each.name}>
                    <td>{each.name}</td>
                    <td>{each.value === "" ? <span class="muted">not set</span> : <code>{each.value}</code>}</td>
                    <td class="nowrap">{each.origin === "default" ? <span class="muted">default</span> : <Badge tone="water">{each.origin}</Badge>}</td>
                    <td>
                      <code class="muted">{each.variable}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </>
  );
}
