import type { Screen } from "../registry";

export default { path: "/sql", title: "SQL", guide: "reference/sql/", nav: { icon: "sql", order: 40 }, load: () => import("./Sql") } satisfies Screen;
