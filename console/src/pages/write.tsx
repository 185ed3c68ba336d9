// Write: ask, register, explain and follow from one box.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type ErrorFields, type Result, Problem, call } from "../api";
import { type Editor, makeEditor } from "../editor";
import { instant, seconds } from "../format";
import { AnswerBox, copy, takeText } from "../parts/answer";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { change, go, link, route } from "../route";
import { canWrite, functions, isAdmin, keywords, readCatalog, relations, status, streams } from "../session";
import * as tabs from "../tabs";

interface Outcome { text: string; results: Result[]; error: ErrorFields | null }
const outcome = signal<Outcome | null>(null);
const running = signal(false);
const LEVELS = ["logical", "syntax", "rewritten", "shared", "runtime", "approximation"] as const;
/** How much of a text is in the address. */
const SHARED = 20_000;
let editor: Editor | null = null;
/** Whether no text was shown since the page was loaded. */
let fresh = true;

export function Write() {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const given = route.value.params.get("text");
    if (given !== null) tabs.show(given);
    editor = makeEditor(host.current!, {
      text: tabs.tab().text,
      onChange: (text) => { tabs.write(text); share(); },
      onRun: () => void run(),
    });
    editor.view.focus();
    const stop = keywords.subscribe(() => editor?.renew());
    // Another address in an open page: the editor shows its text.
    const follow = () => {
      const { page, params } = route.value;
      const text = params.get("text");
      if (page !== "write" || text === null || text === tabs.tab().text.slice(0, SHARED)) return;
      tabs.show(text);
      editor?.setText(text);
    };
    addEventListener("hashchange", follow);
    if (given !== null && fresh) void runShared(given);
    fresh = false;
    return () => { removeEventListener("hashchange", follow); stop(); editor?.end(); editor = null; };
  }, []);
  const pick = (id: number) => {
    tabs.current.value = id;
    editor?.setText(tabs.tab().text);
    share();
  };
  const put = (text: string) => { tabs.open(text); editor?.setText(text); share(); editor?.view.focus(); };
  const shown = outcome.value;
  return (
    <main class="write">
      <section class="panel" aria-labelledby="write-title">
        <h2 id="write-title" class="hidden">Write</h2>
        <div class="tabs" role="group" aria-label="Texts">
          {tabs.tabs.value.map((tab) => (
            <span class={`tab ${tab.id === tabs.tab().id ? "on" : ""}`}>
              <button type="button" aria-pressed={tab.id === tabs.tab().id} onClick={() => pick(tab.id)}>{tabs.title(tab.text)}</button>
              {tabs.tabs.value.length > 1 && (
                <button type="button" class="close" aria-label={`Close ${tabs.title(tab.text)}`}
                  onClick={() => { tabs.close(tab.id); pick(tabs.tab().id); }}>×</button>
              )}
            </span>
          ))}
          <button type="button" aria-label="New text" onClick={() => { tabs.open(); pick(tabs.tab().id); }}>+</button>
        </div>
        <div ref={host} class="editor" id="editor" />
        <div class="tools">
          <button type="button" class="primary" id="run" disabled={running.value} onClick={() => void run()}>Run</button>
          {canWrite.value && <button type="button" onClick={() => void register(false)} title="Makes a standing query of this text">Register</button>}
          {canWrite.value && <button type="button" onClick={() => void register(true)} title="Registers this text and shows its answer as it changes">Follow</button>}
          <select aria-label="Explain" value="" onChange={(event) => { void explain(event.currentTarget.value); event.currentTarget.value = ""; }}>
            <option value="" disabled>Explain …</option>
            {LEVELS.filter((level) => isAdmin.value || !["shared", "runtime"].includes(level)).map((level) => <option value={level}>{level}</option>)}
          </select>
          <button type="button" onClick={() => void format()}>Format</button>
          <button type="button" onClick={() => { share(); void copy(location.href); }} title="The text is in the address, which can be shared">Copy link</button>
          <span class="keys"><kbd>Ctrl</kbd> <kbd>Enter</kbd> runs all, or what is selected · <kbd>Ctrl</kbd> <kbd>Space</kbd> completes</span>
        </div>
      </section>
      <div class="columns">
        <section class="panel results" aria-live="polite" aria-label="Results" id="results">
          {!shown && <Start put={put} />}
          <Example />
          {shown?.error && <ProblemBox error={shown.error} />}
          {shown?.results.map((result, i) => <ResultBox result={result} text={shown.results.length === 1 ? shown.text : ""} name={`answer${i || ""}`} />)}
          {shown && !shown.error && !shown.results.length && <p class="message">Nothing to run: the text has no statement.</p>}
        </section>
        <aside class="panel side">
          <Catalog put={put} />
          <details>
            <summary>History ({tabs.history.value.length})</summary>
            <ul class="plain">{tabs.history.value.map((text) => <li><button type="button" class="code" onClick={() => put(text)}>{text}</button></li>)}</ul>
            {tabs.history.value.length > 0 && <button type="button" class="small" onClick={tabs.forgetHistory}>Forget</button>}
          </details>
        </aside>
      </div>
    </main>
  );
}

function ResultBox({ result, text, name }: { result: Result; text: string; name: string }) {
  if ("rows" in result) {
    const { params } = route.value;
    const isAnswer = result.statement === "ask" || result.statement === "invoke";
    return (
      <AnswerBox rows={result} facts={"exact" in result ? (result as never) : undefined} name={result.query ?? name}
        view={params.get("view") ?? undefined} form={params.get("form") ?? undefined}
        onView={(view, form) => change({ view: view === "table" ? "" : view, form })}
        taken={isAnswer && text ? takeText(text) : undefined} />
    );
  }
  if ("text" in result) return <pre class="plan">{result.text}</pre>;
  const made = result.query && /^(create|alter)/.test(result.statement) && result.message?.startsWith("query");
  return (
    <p class="message done">
      {result.message ?? result.statement} {made && <a href={link("query", result.query!)}>open {result.query}</a>}
    </p>
  );
}

/** How often an order of the example comes, in milliseconds, and how many come at most. */
const COMES_MS = 1000, MOST_ORDERS = 300;
const coming = signal(0);
let timer: ReturnType<typeof setInterval> | undefined;

/** Has orders of the example come while this page is open, so that its answer moves. */
function comeOrders(): void {
  clearInterval(timer);
  const heartbeat = status.value?.streams.find((stream) => stream.name === "orders")?.heartbeat;
  let at = Math.max(heartbeat ? seconds(heartbeat) : 0, seconds("2026-03-01T09:41:00"));
  coming.value = MOST_ORDERS;
  timer = setInterval(() => {
    at += 60;
    coming.value -= 1;
    const shop = ["harbour", "market", "station"][Math.floor(Math.random() * 3)];
    const text = `INSERT INTO orders VALUES ('${instant(at)}', '${shop}', ${Math.round(5 + Math.random() * 40)})`;
    call("post", "/v1/statements", { body: { text } }).catch(() => stopOrders()); // it was dropped, or the server is away
    if (coming.value <= 0) stopOrders();
  }, COMES_MS);
}

function stopOrders(): void {
  clearInterval(timer);
  coming.value = 0;
}

/** Offers what makes the example move, while its stream is there. */
function Example() {
  const there = streams.value.some((stream) => stream.name === "orders" && stream.columns.some(({ name }) => name === "shop"));
  if (!there || !canWrite.value) return null;
  return (
    <p class="pad">
      {coming.value === 0
        ? <><button type="button" onClick={() => { comeOrders(); go("query", "sales", { live: 1, view: "chart" }); }}>Let more orders come</button>
          {" "}<span class="soft">one a second, and watch the answer of the example as a chart</span></>
        : <><button type="button" onClick={stopOrders}>Let no more orders come</button> <span class="soft">one comes every second while this page is open</span></>}
    </p>
  );
}

function Start({ put }: { put: (text: string) => void }) {
  if (!status.value) return null; // whether the pond is empty is not known yet
  if (status.value.streams.length) {
    const name = status.value.streams[0]!.name;
    return (
      <p class="nothing">What is asked is answered here. For example:{" "}
        <button type="button" class="code" onClick={() => put(`SELECT * FROM ${name} [ROWS 100]`)}>SELECT * FROM {name} [ROWS 100]</button></p>
    );
  }
  return (
    <div class="nothing">
      <p>The pond is empty. A <b>stream</b> is what elements arrive in; a <b>standing query</b> is registered once and always has an answer.</p>
      {isAdmin.value && <p><button type="button" class="primary" onClick={() => put(FIRST)}>Begin with an example</button> then press Run.</p>}
    </div>
  );
}

const FIRST = `CREATE STREAM orders (ts TIMESTAMP, shop STRING, amount DOUBLE) TIMESTAMP BY ts;
CREATE QUERY sales AS
  SELECT shop, count(*) AS orders, sum(amount) AS total FROM orders [RANGE 1 HOUR] GROUP BY shop;
INSERT INTO orders VALUES
  ('2026-03-01 09:00:00', 'harbour', 12.5), ('2026-03-01 09:10:00', 'market', 30),
  ('2026-03-01 09:20:00', 'harbour', 8), ('2026-03-01 09:40:00', 'station', 21);
INVOKE sales;
`;

function Catalog({ put }: { put: (text: string) => void }) {
  const kinds = [["Streams", streams.value], ["Relations", relations.value]] as const;
  return (
    <>
      {kinds.map(([kind, found]) => found.length > 0 && (
        <details open={kind === "Streams"}>
          <summary>{kind} ({found.length})</summary>
          <ul class="plain">
            {found.map((place) => (
              <li>
                <details>
                  <summary><code>{place.name}</code></summary>
                  <ul class="plain columns-of">
                    {place.columns.map((column) => <li><code>{column.name}</code> <small>{column.type.toLowerCase()}</small></li>)}
                    <li><button type="button" class="small" onClick={() => put(`SELECT * FROM ${place.name}${kind === "Streams" ? " [ROWS 100]" : ""}`)}>Select from it</button></li>
                  </ul>
                </details>
              </li>
            ))}
          </ul>
        </details>
      ))}
      <p class="soft">{functions.value.length} functions and {keywords.value.length} words complete as you type.</p>
    </>
  );
}

function share(): void {
  if (route.value.page === "write") change({ text: tabs.tab().text.slice(0, SHARED) });
}

async function run(): Promise<void> {
  if (!editor || running.value) return;
  const { text, from } = editor.chosen();
  if (!text.trim()) return;
  await work(text, from, async () => {
    tabs.remember(text.trim());
    return (await call("post", "/v1/statements", { body: { text } })).results;
  });
  await readCatalog().catch(fieldsOf);
}

/** Runs the text of a link if it is one statement that only reads. */
async function runShared(text: string): Promise<void> {
  try {
    const { statements, wrong } = await call("post", "/v1/parse", { body: { text } });
    const reads = /^\s*(select|with)\b/i.test(statements[0]?.printed ?? "");
    if (!wrong && statements.length === 1 && reads && editor?.text() === text) await run();
  } catch (problem) {
    fieldsOf(problem); // the header says that the server is away
  }
}

async function work(text: string, from: number, act: () => Promise<Result[]>): Promise<void> {
  running.value = true;
  try {
    outcome.value = { text, results: await act(), error: null };
    editor?.mark(null);
  } catch (problem) {
    const error = fieldsOf(problem);
    outcome.value = { text, results: problem instanceof Problem ? problem.results ?? [] : [], error };
    editor?.mark(error, from);
  } finally {
    running.value = false;
  }
}

async function explain(level: string): Promise<void> {
  if (!editor) return;
  const { text, from } = editor.chosen();
  await work(text, from, async () => {
    const { plan } = await call("get", "/v1/plan", { query: { query: text.trim().replace(/;$/, ""), level: level as "logical" } });
    return [{ statement: "explain", query: null, text: plan }];
  });
}

async function format(): Promise<void> {
  if (!editor) return;
  const { text } = { text: editor.text() };
  try {
    const parsed = await call("post", "/v1/parse", { body: { text } });
    if (parsed.wrong && !parsed.statements.length) editor.mark(parsed.wrong);
    else if (parsed.statements.length) {
      const next = parsed.statements.map((statement) => `${statement.printed};`).join("\n\n") + "\n";
      editor.setText(next);
      tabs.write(next);
      share();
    }
  } catch (problem) {
    outcome.value = { text, results: [], error: fieldsOf(problem) };
  }
}

/** Makes a standing query of the text, and shows it; CREATE QUERY is run as it stands. */
async function register(follow: boolean): Promise<void> {
  if (!editor) return;
  const { text, from } = editor.chosen();
  const cql = text.trim().replace(/;\s*$/, "");
  const named = /^create\s+(?:or\s+replace\s+)?query/i.test(cql);
  const name = named ? undefined : prompt("The name of the standing query (letters, digits, _):", "")?.trim();
  if (name === undefined && !named) return;
  await work(text, from, async () => {
    const made = await call("post", "/v1/queries", { body: { cql, ...(name ? { name } : {}) } as never });
    tabs.remember(cql);
    const query = (Array.isArray(made) ? made[0]! : made);
    if (follow) go("query", query.name, { live: 1 });
    return [{ statement: "create query", query: query.name, message: `query "${query.name}" registered` }];
  });
}
