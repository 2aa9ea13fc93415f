import type { Screen } from "../registry";

export default { path: "/streams/:name", title: "Stream", guide: "reference/http/records/", load: () => import("./Stream") } satisfies Screen;
