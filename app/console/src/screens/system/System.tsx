/** What the service runs with: its health, drivers and what they carry, connections, keys, who changed what, settings. */
import { Page } from "~/components/Page";
import { TabPanel, Tabs, type Tab } from "~/components/Tabs";
import { place, setQuery } from "~/router";
import { may, seesAll } from "~/session";
import { Audit } from "./Audit";
import { Connections } from "./Connections";
import { Drivers } from "./Drivers";
import { Health } from "./Health";
import { Keys } from "./Keys";
import { Settings } from "./Settings";
import "./system.css";
import "~/records/records.css";

export default function System() {
  const isAdmin = may("admin") && seesAll();
  const tabs: Tab[] = [
    { id: "health", title: "Health" },
    ...(seesAll() ? [{ id: "drivers", title: "Drivers" }] : []),
    { id: "connections", title: "Connections" },
    ...(isAdmin
      ? [
          { id: "keys", title: "Keys" },
          { id: "audit", title: "Audit log" },
          { id: "settings", title: "Settings" },
        ]
      : []),
  ];
  const wanted = place.value.query.get("tab") ?? "health";
  const tab = tabs.some((each) => each.id === wanted) ? wanted : "health";
  return (
    <Page title="System">
      <Tabs label="Parts of the system" tabs={tabs} active={tab} onChange={(id) => setQuery({ tab: id === "health" ? null : id })} />
      <TabPanel id={tab}>
        {tab === "health" && <Health />}
        {tab === "drivers" && <Drivers />}
        {tab === "connections" && <Connections isAdmin={isAdmin} />}
        {tab === "keys" && <Keys />}
        {tab === "audit" && <Audit />}
        {tab === "settings" && <Settings />}
      </TabPanel>
    </Page>
  );
}
