import type { Screen } from "../registry";

export default { path: "/relations", title: "Data", guide: "concepts/event-time/", nav: { icon: "table", order: 20 }, load: () => import("./Relations") } satisfies Screen;
