import type { Screen } from "../registry";

export default { path: "/new", title: "New", guide: "tutorial/", nav: { icon: "add", order: 50 }, role: "write", load: () => import("./New") } satisfies Screen;
