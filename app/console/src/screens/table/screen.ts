import type { Screen } from "../registry";

export default { path: "/tables/:name", title: "Table", guide: "concepts/versions/", load: () => import("./Table") } satisfies Screen;
