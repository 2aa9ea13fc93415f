import type { Screen } from "../registry";

export default { path: "/", title: "Overview", nav: { icon: "overview", order: 10 }, load: () => import("./Overview") } satisfies Screen;
