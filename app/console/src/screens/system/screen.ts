import type { Screen } from "../registry";

export default { path: "/system", title: "System", guide: "operations/", nav: { icon: "system", order: 90 }, load: () => import("./System") } satisfies Screen;
