/** Scripts to begin with: those of the demo where its relations are there, and for every service some made of what it has. */
import type { Relation } from "~/api/types";
import { written } from "./completion";

export interface ExampleScript {
  title: string;
  about: string;
  sql: string;
  /** It changes what is registered; offered to who may. */
  changes: boolean;
}

const DEMO: ExampleScript[] = [
  {
    title: "Final delays, hour by hour",
    about: "A pull query: what is final, newest hours of one airport.",
    sql: "SELECT `origin`, WINDOWSTART, `flights`, `mean_delay`, `worst_delay`\nFROM delays_by_airport\nWHERE `origin` = 'JFK'\nLIMIT 500;",
    changes: false,
  },
  {
    title: "Three airports side by side",
    about: "Look at the chart: flights of each hour, a line for each airport.",
    sql: "SELECT `origin`, WINDOWSTART, `flights`, `mean_delay`\nFROM delays_by_airport\nLIMIT 2000;",
    changes: false,
  },
  {
    title: "Flights as they come, with their weather",
    about: "A push query: it goes on until you stop it.",
    sql: "SELECT `origin`, `flight`, `dest`, `dep_delay`, `temp`, `match`\nFROM departures_with_weather\nEMIT CHANGES;",
    changes: false,
  },
  {
    title: "What came too late",
    about: "Flights that landed after their hour was final.",
    sql: "SHOW LATE RECORDS OF delays_by_airport LIMIT 20;",
    changes: false,
  },
  {
    title: "Why is this window as it is?",
    about: "What became of the records of one key and time.",
    sql: "EXPLAIN WHY delays_by_airport KEY ('JFK') AT '2013-01-30T10:44:00Z';",
    changes: false,
  },
  {
    title: "A table of carriers",
    about: "A persistent query: it runs from now on, and its table can be read.",
    sql: "CREATE TABLE carriers AS\n  SELECT `carrier`, COUNT(*) AS flights, AVG(`dep_delay`) AS mean_delay\n  FROM departures\n  GROUP BY `carrier`\n  EMIT CHANGES;",
    changes: true,
  },
];

const DEMO_RELATIONS = ["departures", "weather", "departures_with_weather", "delays_by_airport"];

export function examplesFor(relations: Relation[]): ExampleScript[] {
  const names = new Set(relations.map((each) => each.name));
  const isDemo = DEMO_RELATIONS.every((name) => names.has(name));
  const table = relations.find((each) => each.kind === "table" && each.origin === "derived");
  const stream = relations.find((each) => each.kind === "stream");
  const made: ExampleScript[] = [];
  if (table !== undefined) {
    made.push({ title: `Rows of ${table.name}`, about: "A pull query: it answers once.", sql: `SELECT * FROM ${table.name} LIMIT 100;`, changes: false });
  }
  if (stream !== undefined) {
    const key = stream.key[0];
    made.push({ title: `Follow ${stream.name}`, about: "A push query: it goes on until you stop it.", sql: `SELECT * FROM ${stream.name} EMIT CHANGES;`, changes: false });
    if (key !== undefined) {
      made.push({
        title: `Count ${stream.name} by ${key}`,
        about: "A push query with a query of its own behind it, gone when you stop.",
        sql: `SELECT ${written(key)}, COUNT(*) AS n\nFROM ${stream.name}\nGROUP BY ${written(key)}\nEMIT CHANGES;`,
        changes: false,
      });
    }
  }
  return [
    ...(isDemo ? DEMO : made),
    { title: "What is there", about: "Streams, tables and queries.", sql: "SHOW STREAMS;\nSHOW TABLES;\nSHOW QUERIES;", changes: false },
  ];
}
