import type { Screen } from "../registry";

export default { path: "/tables/:name", title: "Table", load: () => import("./Table") } satisfies Screen;
