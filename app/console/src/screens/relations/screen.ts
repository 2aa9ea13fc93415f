import type { Screen } from "../registry";

export default { path: "/relations", title: "Streams and tables", nav: { icon: "table", order: 30 }, load: () => import("./Relations") } satisfies Screen;
