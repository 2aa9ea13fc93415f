import type { Screen } from "../registry";

export default { path: "/relations", title: "Data", nav: { icon: "table", order: 20 }, load: () => import("./Relations") } satisfies Screen;
