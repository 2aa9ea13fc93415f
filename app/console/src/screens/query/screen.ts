import type { Screen } from "../registry";

export default { path: "/queries/:name", title: "Query", guide: "concepts/stream-time/", load: () => import("./Query") } satisfies Screen;
