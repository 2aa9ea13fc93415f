/** What makes an editor one of SQL: colours, completion, marks under what does not fit, and the keys that run. */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { linter, lintKeymap, type Diagnostic } from "@codemirror/lint";
import { Prec, type Extension } from "@codemirror/state";
import { keymap, type EditorView } from "@codemirror/view";
import { ApiError, isAborted } from "~/api/client";
import { completing, type Known } from "./completion";
import { marksOf } from "./faults";
import { withoutDone } from "./kept";
import { check } from "./running";
import { KEYWORDS, TYPES } from "./words";

const DIALECT = SQLDialect.define({
  keywords: KEYWORDS.join(" ").toLowerCase(),
  types: TYPES.join(" ").toLowerCase(),
  builtin: "rowtime windowstart windowend validfrom validto windowstate",
  doubleDollarQuotedStrings: true,
  identifierQuotes: '`"',
  slashComments: false,
});

/** So long after the last key is the text checked. */
const PAUSE_MS = 450;
/** Longer scripts are checked when they run: each check plans all of it. */
const MOST_CHECKED = 20_000;

export interface Doing {
  known: () => Known;
  /** Run the statement at the cursor, or the selection. */
  run: () => void;
  runAll: () => void;
  /** What was found by the newest check. */
  onChecked: (faults: number) => void;
}

/** The colours alone, for texts that are only shown. */
export function sqlColours(): Extension {
  return sql({ dialect: DIALECT, upperCaseKeywords: true });
}

export function sqlExtensions(doing: Doing): Extension {
  return [
    sqlColours(),
    autocompletion({ override: [completing(doing.known)], icons: false, maxRenderedOptions: 60 }),
    closeBrackets(),
    linter(checking(doing.onChecked), { delay: PAUSE_MS }),
    Prec.highest(
      keymap.of([
        { key: "Mod-Enter", run: done(doing.run) },
        { key: "Mod-Shift-Enter", run: done(doing.runAll) },
      ]),
    ),
    keymap.of([...closeBracketsKeymap, ...completionKeymap, ...lintKeymap]),
  ];
}

function done(work: () => void): () => boolean {
  return () => {
    work();
    return true;
  };
}

function checking(onChecked: (faults: number) => void): (view: EditorView) => Promise<Diagnostic[]> {
  let before: AbortController | null = null;
  return async (view) => {
    before?.abort();
    const text = withoutDone(view.state.doc.toString());
    if (text.trim() === "" || text.length > MOST_CHECKED) {
      onChecked(0);
      return [];
    }
    const asking = new AbortController();
    before = asking;
    try {
      await check(text, asking.signal);
      onChecked(0);
      return [];
    } catch (error) {
      if (isAborted(error) || !(error instanceof ApiError)) return [];
      const marks = marksOf(error.problem, view.state.doc);
      onChecked(marks.length);
      return marks;
    }
  };
}
