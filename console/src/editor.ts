// The editor of CQL: words and functions of the server's language, names of its catalog, and
// errors at their place while somebody types.
import { type Completion, type CompletionContext, type CompletionResult, autocompletion } from "@codemirror/autocomplete";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, linter } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { EditorView, basicSetup } from "codemirror";
import { type ErrorFields, Problem, call } from "./api";
import { functions, keywords, relations, streams } from "./session";

const TYPES = "bigint boolean date decimal double float hugeint integer interval int list smallint string struct time timestamp tinyint varchar";
/** How long nobody types before the text is looked at, in milliseconds. */
const REST_MS = 300;

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--water)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--text-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--text-number)" },
  { tag: tags.typeName, color: "var(--text-type)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--soft)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": { fontSize: "0.9rem", backgroundColor: "var(--panel)", color: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--water)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", minHeight: "9rem", maxHeight: "45vh", overflow: "auto" },
  // As high as the box: a click anywhere in it is a click into the text.
  ".cm-content": { caretColor: "var(--ink)", minHeight: "9rem" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--soft)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--active-line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-matchingBracket": { backgroundColor: "var(--selection)", outline: "none" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "0.4rem", maxWidth: "min(40rem, 90vw)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--deep)", color: "#fff" },
  ".cm-completionDetail": { color: "var(--soft)", fontStyle: "normal", marginLeft: "1em" },
  "li[aria-selected] .cm-completionDetail": { color: "#dff" },
  ".cm-diagnostic": { fontFamily: "system-ui, sans-serif", padding: "0.4rem 0.7rem" },
  ".cm-placeholder": { color: "var(--soft)" },
});

const dialect = () => SQLDialect.define({
  keywords: keywords.value.join(" ").toLowerCase(),
  types: TYPES,
  doubleQuotedStrings: false,
  hashComments: false,
  slashComments: false,
  operatorChars: "*+-%<>!=&|~^/:",
  identifierQuotes: '"',
});

export interface Editor {
  view: EditorView;
  text: () => string;
  /** What is selected, or all; with the place at which it begins. */
  chosen: () => { text: string; from: number };
  setText: (text: string) => void;
  /** Marks an error that running found; `from` is where the text that was run begins. */
  mark: (error: ErrorFields | null, from?: number) => void;
  /** Takes the language and the names anew. */
  renew: () => void;
  end: () => void;
}

interface Wanted {
  text: string;
  onChange: (text: string) => void;
  onRun: () => void;
}

/** Makes an editor below an element, in a root of its own: so its styles need no inline style. */
export function makeEditor(host: HTMLElement, { text, onChange, onRun }: Wanted): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const language = new Compartment();
  let ran: { error: ErrorFields; from: number } | null = null;
  const check = linter(async (view) => {
    const found = ran ?? { error: await parse(view.state.doc.toString()), from: 0 };
    return found.error ? [toDiagnostic(view, found.error, found.from)] : [];
  }, { delay: REST_MS });
  const state = (doc: string) => EditorState.create({
    doc,
    extensions: [
      Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => { onRun(); return true; } }])),
      basicSetup,
      language.of(sql({ dialect: dialect() })),
      autocompletion({ override: [complete], icons: false }),
      syntaxHighlighting(colours),
      look,
      check,
      placeholder("SELECT carrier, count(*) AS flights FROM flights [RANGE 1 HOUR] GROUP BY carrier"),
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ "aria-label": "CQL" }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        ran = null;
        onChange(update.state.doc.toString());
      }),
    ],
  });
  const view = new EditorView({ state: state(text), parent: root, root });
  const touch = () => view.dispatch({ effects: [] });
  return {
    view,
    text: () => view.state.doc.toString(),
    chosen: () => {
      const { from, to, empty } = view.state.selection.main;
      return empty ? { text: view.state.doc.toString(), from: 0 } : { text: view.state.sliceDoc(from, to), from };
    },
    setText: (next) => { ran = null; view.setState(state(next)); },
    mark: (error, from = 0) => {
      ran = error && { error, from };
      // The same text, written again: the linter looks at it anew.
      view.setState(state(view.state.doc.toString()));
      touch();
    },
    renew: () => view.dispatch({ effects: language.reconfigure(sql({ dialect: dialect() })) }),
    end: () => view.destroy(),
  };
}

/** Makes an editor of plain text, like a document in JSON. */
export function makePlainEditor(host: HTMLElement, text: string, label: string, onChange: (text: string) => void): EditorView {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const extensions = [
    basicSetup, look, EditorView.lineWrapping, EditorView.contentAttributes.of({ "aria-label": label }),
    EditorView.updateListener.of((update) => { if (update.docChanged) onChange(update.state.doc.toString()); }),
  ];
  return new EditorView({ state: EditorState.create({ doc: text, extensions }), parent: root, root });
}

async function parse(text: string): Promise<ErrorFields | null> {
  if (!text.trim()) return null;
  try {
    return (await call("post", "/v1/parse", { body: { text } })).wrong;
  } catch (problem) {
    if (problem instanceof Problem) return null; // the header says that the server is away
    throw problem;
  }
}

function toDiagnostic(view: EditorView, error: ErrorFields, from: number): Diagnostic {
  const doc = view.state.doc.toString();
  // Places count characters, the editor counts UTF-16 units.
  const characters = [...doc.slice(from)];
  const units = (n: number) => from + characters.slice(0, n).join("").length;
  const start = Math.min(units(error.place?.start ?? 0), doc.length);
  let end = Math.min(Math.max(units(error.place?.end ?? 0), start + 1), doc.length);
  if (!error.place) end = doc.length;
  const rest = [error.detail, error.hint && `Hint: ${error.hint}`].filter(Boolean).join("\n");
  return {
    from: Math.min(start, Math.max(doc.length - 1, 0)), to: end, severity: "error", source: error.code,
    message: rest ? `${error.message}\n${rest}` : error.message,
  };
}

/** Offers words, functions with their calls, and the names of the catalog with their columns. */
function complete(context: CompletionContext): CompletionResult | null {
  const word = context.matchBefore(/[\w$]+/);
  const from = word?.from ?? context.pos;
  const before = context.state.sliceDoc(Math.max(0, from - 200), from);
  const places = [...streams.value, ...relations.value];
  const owner = /(\w+)\.$/.exec(before)?.[1]?.toLowerCase();
  if (owner) {
    const found = places.find((place) => place.name.toLowerCase() === owner || meansAlias(context, owner, place.name));
    return found ? { from, options: columnsOf(found), validFor: /^[\w$]*$/ } : null;
  }
  const opened = /\[\s*\w*$/.test(before + (word?.text ?? ""));
  const afterFrom = /\b(from|join|into|stream|relation|heartbeat|describe)\s+$/i.test(before);
  if (!word && !context.explicit && !afterFrom && !opened) return null;
  const names: Completion[] = places.map((place) => ({
    label: quote(place.name), detail: "source" in place && "delay_us" in place ? "stream" : "relation", type: "class", boost: afterFrom ? 20 : 3,
  }));
  if (afterFrom) return { from, options: names, validFor: /^[\w$]*$/ };
  const upper = !word || word.text === word.text.toUpperCase();
  if (opened) return { from, options: WINDOWS.map((label) => ({ label, type: "keyword", detail: "window" })) };
  const text = context.state.doc.toString().toLowerCase();
  const options: Completion[] = [
    ...names,
    ...places.flatMap((place) => columnsOf(place, text.includes(place.name.toLowerCase()) ? 10 : 1)),
    ...keywords.value.map((label) => ({ label: upper ? label : label.toLowerCase(), type: "keyword", boost: 2 })),
    ...functions.value.map((found) => ({
      label: found.name, type: "function", detail: found.calls[0]?.slice(found.name.length) ?? found.kind,
      info: found.calls.length > 1 ? found.calls.join("\n") : undefined,
      apply: found.calls.length ? applyCall(found.name) : found.name,
    })),
  ];
  return { from, options, validFor: /^[\w$]*$/ };
}

const WINDOWS = ["RANGE 1 HOUR", "RANGE 1 DAY", "RANGE 10 MINUTES SLIDE 1 MINUTE", "ROWS 100", "NOW", "RANGE UNBOUNDED", "PARTITION BY "];

function columnsOf(place: { name: string; columns: { name: string; type: string }[] }, boost = 10): Completion[] {
  return place.columns.map((column) => ({
    label: quote(column.name), type: "property", detail: `${column.type.toLowerCase()} of ${place.name}`, boost,
  }));
}

const quote = (name: string) => (/^[A-Za-z_][\w$]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

function meansAlias(context: CompletionContext, alias: string, name: string): boolean {
  const text = context.state.doc.toString();
  return new RegExp(`\\b${name}\\b\\s*(\\[[^\\]]*\\]\\s*)?(as\\s+)?${alias}\\b`, "i").test(text);
}

function applyCall(name: string) {
  return (view: EditorView, _: Completion, from: number, to: number) => {
    view.dispatch({ changes: { from, to, insert: `${name}()` }, selection: { anchor: from + name.length + 1 } });
  };
}
