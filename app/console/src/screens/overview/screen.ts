import type { Screen } from "../registry";

export default { path: "/", title: "Overview", guide: "concepts/pipelines/", nav: { icon: "overview", order: 10 }, load: () => import("./Overview") } satisfies Screen;
