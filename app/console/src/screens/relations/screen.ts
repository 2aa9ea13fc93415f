import type { Screen } from "../registry";

export default { path: "/relations", title: "Streams and tables", nav: { icon: "table", order: 20 }, load: () => import("./Relations") } satisfies Screen;
