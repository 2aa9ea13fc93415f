/** What differs between two JSON values, part by part, each with its pointer. */

export interface Difference {
  pointer: string;
  /** undefined: it was not there. */
  before: unknown;
  /** undefined: it is gone. */
  after: unknown;
}

export function differences(before: unknown, after: unknown, pointer = ""): Difference[] {
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => differences(before[name], after[name], `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`));
  }
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return before.flatMap((value, at) => differences(value, after[at], `${pointer}/${at}`));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ pointer: pointer === "" ? "/" : pointer, before, after }];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
