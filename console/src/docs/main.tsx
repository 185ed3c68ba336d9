// All calls of the HTTP API: what the server's OpenAPI document says, and a form that tries each.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { token } from "../api";
import { type Call, type Document, type Named, group } from "./document";
import { Shape } from "./shapes";
import { Trial } from "./trial";
import { Words } from "./words";

type Loaded = { document: Document } | { says: string; wants: boolean } | null;

async function load(): Promise<Loaded> {
  const headers: Record<string, string> = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  try {
    const response = await fetch("openapi.json", { headers });
    if (response.ok) return { document: await response.json() };
    if (response.status !== 401) return { says: `The server answered ${response.status}.`, wants: false };
    return { says: token.get() ? "The server does not know that token." : "This server asks for a token.", wants: true };
  } catch {
    return { says: "The server cannot be reached.", wants: false };
  }
}

function App() {
  const [loaded, setLoaded] = useState<Loaded>(null);
  const [sought, setSought] = useState("");
  useEffect(() => void load().then(setLoaded), []);
  const document = loaded && "document" in loaded ? loaded.document : null;
  const reload = () => void load().then(setLoaded);
  return (
    <>
      <header>
        <h1><img src="console/icon.svg" alt="" width="26" height="26" /> Millpond</h1>
        <nav aria-label="Pages">
          <a href="./">Console</a>
          <a href="docs" aria-current="page">API</a>
          <a href="openapi.json">openapi.json</a>
        </nav>
        <span class="fill" />
        <Token onChange={reload} />
      </header>
      <main class="calls">
        {!document && <section class="panel"><p class="nothing" role="status">{loaded && "says" in loaded ? loaded.says : "The calls are coming …"}</p></section>}
        {document && (
          <>
            <section class="panel">
              <div class="tools">
                <h2>Calls of Millpond {document.info.version}</h2>
                <input type="search" id="sought" placeholder="Search calls" aria-label="Search calls" value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
              </div>
            </section>
            {[...group(document)].map(([tag, calls]) => <Group document={document} tag={tag} calls={calls.filter((one) => fits(one, sought))} />)}
          </>
        )}
      </main>
    </>
  );
}

/** The token of this tab, which the console has, too. */
function Token({ onChange }: { onChange: () => void }) {
  const [text, setText] = useState("");
  const use = (given: string) => { token.set(given); setText(""); onChange(); };
  return (
    <form class="connection" onSubmit={(event) => { event.preventDefault(); use(text.trim()); }}>
      {token.get() && <span class="soft">a token is given <button type="button" class="small" onClick={() => use("")}>Forget it</button></span>}
      <input id="token" type="password" autocomplete="off" placeholder="Token" aria-label="Token" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button>Use</button>
    </form>
  );
}

function Group({ document, tag, calls }: { document: Document; tag: string; calls: Named[] }) {
  if (!calls.length) return null;
  return (
    <section class="panel" aria-label={tag}>
      <div class="tools"><h2>{tag}</h2></div>
      {calls.map((named) => <One key={named.id} document={document} named={named} />)}
    </section>
  );
}

function One({ document, named }: { document: Document; named: Named }) {
  const { id, method, path, call } = named;
  const linked = decodeURI(location.hash.slice(1)) === id;
  const [open, setOpen] = useState(linked);
  useEffect(() => { if (linked) window.document.getElementById(id)?.scrollIntoView(); }, []);
  return (
    <details class="call" id={id} open={linked} onToggle={(event) => { if (event.target === event.currentTarget) toggle(event.currentTarget.open); }}>
      <summary><span class={`method ${method}`}>{method.toUpperCase()}</span> <code>{path}</code> <span class="soft">{firstSentence(call)}</span></summary>
      {open && (
        <div class="inside">
          <Words text={call.description ?? ""} />
          <Trial document={document} named={named} />
          <Answers document={document} call={call} />
        </div>
      )}
    </details>
  );

  function toggle(shown: boolean): void {
    setOpen(shown);
    if (shown) history.replaceState(null, "", `docs#${id}`);
  }
}

function Answers({ document, call }: { document: Document; call: Call }) {
  const body = Object.entries(call.requestBody?.content ?? {}).filter(([, { schema }]) => schema);
  const answers = Object.entries(call.responses).sort(([a], [b]) => a.localeCompare(b));
  return (
    <dl class="answers">
      {body.map(([media, { schema }]) => <div><dt>body</dt><dd><span class="soft">{media}</span> <Shape document={document} schema={schema!} /></dd></div>)}
      {answers.map(([code, answer]) => (
        <div>
          <dt class={code < "300" ? "good" : ""}>{code}</dt>
          <dd>
            {code < "300" && Object.entries(answer.content ?? {}).map(([media, { schema }]) => <div><span class="soft">{media}</span> {schema && <Shape document={document} schema={schema} />}</div>)}
            <span class="soft">{answer.description}</span>
            {Object.entries(answer.headers ?? {}).map(([name, { description }]) => <div><code>{name}</code> <span class="soft">{description}</span></div>)}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function fits({ method, path, call }: Named, sought: string): boolean {
  const text = `${method} ${path} ${call.description ?? ""}`.toLowerCase();
  return sought.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function firstSentence(call: Call): string {
  return (call.description ?? "").replace(/\s+/g, " ").replaceAll("`", "").split(/(?<=\.) /)[0]!;
}

const app = document.getElementById("app")!;
app.replaceChildren();
render(<App />, app);
