/** A text editor: CodeMirror in the console's clothes. The text lives in the editor; who shows it gets to know of every change. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { cspNonce } from "~/theme";

interface EditorProps {
  /** What screen readers call it. */
  label: string;
  /** The text to begin with. Another one comes by `onView`: as a property it would fight with what is typed between two drawings. */
  initial: string;
  onChange?: (text: string) => void;
  /** Language, completion, marks: see `sqlExtensions`. They may change; the text and its history stay. */
  extensions?: Extension;
  isReadOnly?: boolean;
  hint?: string;
  /** Gets the view as soon as it is there: for commands from outside. */
  onView?: (view: EditorView | null) => void;
  /** Least height in lines. */
  lines?: number;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: "var(--accent)", fontWeight: "500" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--land)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--clock)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--water)" },
  { tag: tags.propertyName, color: "var(--text)" },
]);

const LOOK = EditorView.theme({
  "&": { backgroundColor: "transparent", color: "var(--text)", fontSize: "13px", height: "100%" },
  ".cm-content": { fontFamily: "var(--mono)", padding: "10px 0", caretColor: "var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 8px 0 12px", minWidth: "28px" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 5%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--muted)" },
  "&.cm-focused": { outline: "none" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "color-mix(in srgb, var(--accent) 22%, transparent) !important" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-tooltip": {
    backgroundColor: "var(--panel)",
    color: "var(--text)",
    border: "1px solid var(--line-strong)",
    borderRadius: "8px",
    boxShadow: "var(--shadow-high)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12.5px", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal", marginLeft: "1.2em" },
  ".cm-completionInfo": { padding: "8px 12px", maxWidth: "34em", fontFamily: "var(--sans)", fontSize: "12.5px", lineHeight: "1.5" },
  ".cm-diagnostic": { padding: "6px 12px", fontFamily: "var(--sans)", fontSize: "12.5px", borderLeftWidth: "3px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--late)" },
  ".cm-diagnosticSource": { color: "var(--muted)", fontFamily: "var(--mono)", fontSize: "11px" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--late)",
    textDecorationSkipInk: "none",
    textUnderlineOffset: "3px",
  },
});

export function Editor({ label, initial, onChange, extensions = [], isReadOnly = false, hint, onView, lines = 6 }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const changing = useRef(new Compartment());
  const told = useRef(onChange);
  told.current = onChange;

  useEffect(() => {
    const made = new EditorView({
      parent: host.current!,
      state: EditorState.create({
        doc: initial,
        extensions: [
          EditorView.cspNonce.of(cspNonce()),
          lineNumbers(),
          highlightSpecialChars(),
          history(),
          drawSelection(),
          bracketMatching(),
          isReadOnly ? [] : highlightActiveLine(),
          syntaxHighlighting(COLOURS),
          LOOK,
          changing.current.of(extensions),
          // Behind the extensions, whose keys go first. Escape, then Tab, leaves the editor.
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorState.readOnly.of(isReadOnly),
          hint === undefined ? [] : placeholder(hint),
          // Editable text is reached by the keyboard as it is; axe believes it of a `tabindex` alone.
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, spellcheck: "false", autocorrect: "off", autocapitalize: "off" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) told.current?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    onView?.(made);
    return () => {
      onView?.(null);
      made.destroy();
    };
  }, []);

  useEffect(() => {
    view.current?.dispatch({ effects: changing.current.reconfigure(extensions) });
  }, [extensions]);

  return <div ref={host} class="editor" style={{ minHeight: `${lines * 1.6 + 1.6}em` }} />;
}
