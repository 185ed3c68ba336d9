// The console: the frame around the pages, the sign-in, the keys.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asking, online, token } from "./api";
import { count, duration, perSecond } from "./format";
import { OneQuery } from "./pages/query";
import { Plan } from "./pages/plan";
import { Queries } from "./pages/queries";
import { System } from "./pages/system";
import { Write } from "./pages/write";
import { go, link, route } from "./route";
import { caller, isAdmin, rates, status, watch } from "./session";

const PAGES: Record<string, { title: string; key: string; admins?: boolean; show: () => preact.JSX.Element }> = {
  write: { title: "Write", key: "w", show: Write },
  queries: { title: "Queries", key: "q", show: Queries },
  plan: { title: "Plan", key: "p", show: Plan, admins: true },
  system: { title: "System", key: "s", show: System },
};

function App() {
  const { page, name } = route.value;
  const refused = PAGES[page]?.admins && caller.value !== null && !isAdmin.value;
  const Shown = page === "query" ? OneQuery : refused ? AdminsOnly : (PAGES[page] ?? PAGES.write!).show;
  useEffect(() => {
    if (page !== "query" && !PAGES[page]) location.replace(link("write"));
  }, [page]);
  useEffect(() => {
    document.title = `${page === "query" ? name : (PAGES[page]?.title ?? "Write")} · Millpond`;
  }, [page, name]);
  return (
    <>
      <a class="skip" href="#app" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main")?.scrollIntoView(); }}>Skip to the page</a>
      <header>
        <h1><img src="console/icon.svg" alt="" width="26" height="26" /> Millpond</h1>
        <nav aria-label="Pages">
          {Object.entries(PAGES).filter(([, shown]) => !shown.admins || isAdmin.value).map(([id, { title, key }]) => (
            <a href={link(id)} aria-current={page === id || (page === "query" && id === "queries") ? "page" : undefined} title={`Alt ${key.toUpperCase()}`}>{title}</a>
          ))}
        </nav>
        <Glance />
        <Connection />
      </header>
      {(asking.value === null || caller.value) && <Shown key={page === "query" ? name : page} />}
      <SignIn />
    </>
  );
}

function AdminsOnly() {
  return <main><section class="panel"><p class="nothing">This page is for the admin alone: it tells of all owners.</p></section></main>;
}

function Glance() {
  const shown = status.value;
  if (!shown) return <span class="fill" />;
  const known = [...rates.value.values()].map(({ rate }) => rate.at(-1) ?? 0);
  const total = known.length ? known.reduce((a, b) => a + b, 0) : undefined;
  const facts = [["queries", count(shown.queries)], ["streams", count(shown.streams.length)], ["rows/s", perSecond(total)], ["up", duration(shown.uptime_s)]];
  return <dl class="glance">{facts.map(([key, value]) => <div><dt>{key}</dt><dd>{value}</dd></div>)}</dl>;
}

function Connection() {
  const ready = status.value?.ready;
  const [kind, text] = online.value === null ? ["", "connecting"]
    : !online.value ? ["down", "the server cannot be reached"] : ready === false ? ["", "not ready"] : ["up", "running"];
  const role = caller.value;
  return (
    <div class="connection">
      <a class="soft" href="docs" title="All calls of the HTTP API">API</a>
      {role && token.get() && (
        <span class="soft">{role.owner || "one token"} · {role.role} <button type="button" class="small" onClick={token.forget}>Sign out</button></span>
      )}
      <span class={`state ${kind}`} role="status" id="state">{text}</span>
    </div>
  );
}

function SignIn() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const said = asking.value;
  useEffect(() => {
    if (said !== null && !dialog.current!.open) dialog.current!.showModal();
    if (said === null) dialog.current!.close();
  }, [said]);
  return (
    <dialog ref={dialog} aria-labelledby="token-title" onCancel={(event) => event.preventDefault()}>
      <form method="dialog" onSubmit={(event) => { event.preventDefault(); token.set(text.trim()); setText(""); }}>
        <h2 id="token-title">This server asks for a token</h2>
        {said && <p class="reason" role="alert" id="token-wrong">{said}</p>}
        <p>The operator makes tokens: <code>millpond token add</code>, or <code>millpond serve --token</code>. It is kept in this tab only.</p>
        <input id="token" type="password" autocomplete="off" aria-label="Token" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button class="primary">Continue</button>
      </form>
    </dialog>
  );
}

addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  const found = Object.entries(PAGES).find(([, { key }]) => event.code === `Key${key.toUpperCase()}`);
  if (found) {
    event.preventDefault();
    go(found[0]);
  }
});

void watch();
const app = document.getElementById("app")!;
app.replaceChildren();
render(<App />, app);
