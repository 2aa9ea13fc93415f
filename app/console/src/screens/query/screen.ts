import type { Screen } from "../registry";

export default { path: "/queries/:name", title: "Query", load: () => import("./Query") } satisfies Screen;
