import type { Screen } from "../registry";

export default { path: "/streams/:name", title: "Stream", load: () => import("./Stream") } satisfies Screen;
