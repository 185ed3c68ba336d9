// One query: its answer now or at a kept instant, as it changes, its plan, and what it is.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Answer, type ErrorFields, type Query, type QueryCost, Problem, address, call, parseExactly, send } from "../api";
import { bytes, count, instant, moment, seconds, spell } from "../format";
import { AnswerBox, type Taken, base, shell } from "../parts/answer";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { change, go, link, route } from "../route";
import { canWrite, isAdmin, pause, status } from "../session";

const LEVELS = ["logical", "syntax", "rewritten", "shared", "runtime", "approximation"] as const;
type Level = (typeof LEVELS)[number];
/** How often at most a followed answer is asked again, in milliseconds. */
const REST_MS = 400;
const MOST_CHANGES = 100;
/** How often the query itself is looked at, in milliseconds. */
const DESCRIBED_MS = 2000;
/** How long each instant is shown while time is played, in milliseconds. */
const STEP_MS = 700;

interface Event { event: string; change?: string; data?: unknown; timestamp?: string; [key: string]: unknown }

export function OneQuery() {
  const { name, params } = route.value;
  const at = params.get("at");
  const live = params.get("live") !== null && at === null;
  const [query, setQuery] = useState<Query | null>(null);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  const [events, setEvents] = useState<Event[]>([]);
  const [connected, setConnected] = useState(false);
  /** What the server says since the query is there no longer. */
  const [gone, setGone] = useState<ErrorFields | null>(null);
  const turn = useRef(0);
  const attempt = async (act: () => Promise<void>) => {
    try {
      await act();
      setError(null);
    } catch (problem) {
      setError(fieldsOf(problem));
    }
  };
  const describe = async () => {
    try {
      setQuery(await call("get", "/v1/queries/{query}", { path: { query: name } }));
      setGone(null);
    } catch (problem) {
      const gone = fieldsOf(problem);
      if (problem instanceof Problem && problem.status >= 400 && problem.status < 500) setGone(gone);
    }
  };
  const invoke = () => attempt(async () => {
    const mine = ++turn.current;
    const found = await call("get", "/v1/queries/{query}/result", { path: { query: name }, query: { at: at ?? undefined } });
    if (mine === turn.current) setAnswer(found);
  });
  useEffect(() => { setQuery(null); setAnswer(null); setEvents([]); setGone(null);
    void describe();
    // Others drop and change it too.
    const timer = setInterval(() => { if (!document.hidden) void describe(); }, DESCRIBED_MS);
    return () => clearInterval(timer);
  }, [name]);
  useEffect(() => { void invoke(); }, [name, at]);
  useEffect(() => {
    if (!live || gone) return undefined;
    const followed = follow(name, (event) => {
      setEvents((before) => [event, ...before].slice(0, MOST_CHANGES));
    }, () => void invoke(), setConnected, setError);
    return () => { followed(); setConnected(false); };
  }, [name, live, gone !== null]);
  if ((gone ?? error) && !query) return <main><section class="panel"><ProblemBox error={(gone ?? error)!} /><p class="nothing"><a href={link("queries")}>All queries</a></p></section></main>;
  if (!query) return <main><section class="panel"><p class="nothing">Looking for {name} …</p></section></main>;
  return (
    <main>
      <section class="panel" aria-labelledby="query-title">
        <div class="tools">
          <h2 id="query-title">{query.name}</h2>
          {gone ? <span class="tag suspended">dropped</span> : <State query={query} />}
          <span class="fill" />
          <label><input type="checkbox" id="live" checked={live} onChange={(event) => change({ live: event.currentTarget.checked ? 1 : "", at: "" })} /> live</label>
          {live && !gone && <span class={`tag ${connected ? "active" : "suspended"}`} id="feed">{connected ? "following" : "connecting"}</span>}
          <button type="button" onClick={() => void invoke()}>Ask again</button>
          {canWrite.value && !gone && <Actions query={query} done={describe} failed={setError} />}
        </div>
        <pre class="cql"><code>{query.cql}</code></pre>
        {query.suspended && <p class="reason">Suspended: {query.suspended}</p>}
        {query.reduced && <p class="soft pad">Reduced when it was registered: {query.reduced}</p>}
        {gone && <p class="reason" role="alert">It is there no longer: {gone.message}. <a href={link("queries")}>All queries</a></p>}
        {error && !gone && <ProblemBox error={error} />}
        <Instants answer={answer} at={at} />
        {answer && (
          <AnswerBox rows={answer} facts={answer} name={query.name} view={params.get("view") ?? "table"} form={params.get("form") ?? ""}
            onView={(view, form) => change({ view, form })} taken={take(query, at)} />
        )}
      </section>
      {live && <Changes events={events} />}
      <Plan query={query} />
      <Costs query={query} />
      <About query={query} />
    </main>
  );
}

function State({ query }: { query: Query }) {
  const state = query.suspended ? "suspended" : query.active ? "active" : "inactive";
  return <span class={`tag ${state}`}>{state}</span>;
}

function Actions({ query, done, failed }: { query: Query; done: () => Promise<void>; failed: (error: ErrorFields) => void }) {
  const path = { query: query.id };
  const act = async (work: () => Promise<unknown>) => {
    try {
      await work();
      await done();
    } catch (problem) {
      failed(fieldsOf(problem));
    }
  };
  return (
    <>
      <button type="button" onClick={() => act(() => call("patch", "/v1/queries/{query}", { path, body: { active: !query.active } as never }))}>
        {query.active ? "Deactivate" : "Activate"}
      </button>
      <button type="button" class="danger" onClick={() => {
        if (!confirm(`Drop the query ${query.name} for good?`)) return;
        void call("delete", "/v1/queries/{query}", { path }).then(() => go("queries"), (problem) => failed(fieldsOf(problem)));
      }}>Drop</button>
    </>
  );
}

/** Follows a query by a ticket; goes on by itself after the connection, or the ticket, was lost. */
function follow(
  name: string, onEvent: (event: Event) => void, onChange: () => void,
  onState: (on: boolean) => void, onError: (error: ErrorFields | null) => void,
): () => void {
  let ended = false;
  let source: EventSource | null = null;
  let waiting = 0;
  const changed = () => {
    if (!waiting) waiting = window.setTimeout(() => { waiting = 0; onChange(); }, REST_MS);
  };
  const begin = async () => {
    while (!ended && !document.hidden) {
      try {
        const ticket = await call("post", "/v1/tickets", { body: { queries: [name], containing: "" } });
        if (ended || document.hidden || source) return;
        source = new EventSource(ticket.path);
        source.onopen = () => { onState(true); onError(null); changed(); };
        source.onerror = () => {
          onState(false);
          if (source?.readyState === EventSource.CLOSED) {
            source = null;
            void pause(1000).then(begin);
          }
        };
        for (const kind of ["change", "answer", "mark", "stopped", "ended", "altered"]) {
          source.addEventListener(kind, (message) => {
            const event = parseExactly((message as MessageEvent<string>).data) as Event;
            if (kind !== "mark") onEvent({ ...event, event: kind });
            changed();
          });
        }
        return;
      } catch (problem) {
        onError(fieldsOf(problem));
        if (problem instanceof Problem && problem.status >= 400 && problem.status < 500) return;
        await pause(1500);
      }
    }
  };
  // Nobody looks: the server is asked for nothing, and what was missed is asked for afterwards.
  const look = () => {
    if (!document.hidden && !source) void begin();
    else if (document.hidden && source) {
      source.close();
      source = null;
      onState(false);
    }
  };
  document.addEventListener("visibilitychange", look);
  if (!document.hidden) void begin();
  return () => { ended = true; source?.close(); clearTimeout(waiting); document.removeEventListener("visibilitychange", look); };
}

/** The instants that are kept: one is chosen, or time is played forward from it. */
function Instants({ answer, at }: { answer: Answer | null; at: string | null }) {
  const [playing, setPlaying] = useState(false);
  const beats = (status.value?.streams ?? []).map((stream) => stream.heartbeat).filter((beat): beat is string => !!beat && !beat.startsWith("-"));
  const newest = at === null && answer ? seconds(answer.as_of) : Math.max(...beats.map(seconds).filter(Number.isFinite), at ? seconds(at) : -Infinity);
  const [span, setSpan] = useState(3600);
  const shown = at ? seconds(at) : newest;
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setInterval(() => {
      const now = seconds(route.value.params.get("at") ?? "") || newest - span;
      const then = now + span / 60;
      if (then >= newest) {
        setPlaying(false);
        change({ at: "" });
      } else change({ at: instant(then), live: "" });
    }, STEP_MS);
    return () => clearInterval(timer);
  }, [playing, span, newest]);
  if (!Number.isFinite(newest)) return null;
  return (
    <div class="tools instants">
      <button type="button" aria-pressed={playing} onClick={() => {
        if (!playing && !at) change({ at: instant(newest - span), live: "" });
        setPlaying(!playing);
      }}>{playing ? "Pause" : "Play"}</button>
      <input type="range" aria-label="Instant of the answer" id="instant" min={newest - span} max={newest} step={Math.max(span / 600, 0.001)} value={shown}
        onInput={(event) => {
          const chosen = Number(event.currentTarget.value);
          change({ at: chosen >= newest ? "" : instant(chosen), live: "" });
        }} />
      <output>{at ? moment(at) : "now"}</output>
      <select aria-label="How far back" value={span} onChange={(event) => setSpan(Number(event.currentTarget.value))}>
        <option value={60}>last minute</option><option value={3600}>last hour</option>
        <option value={86400}>last day</option><option value={604800}>last week</option><option value={31536000}>last year</option>
      </select>
    </div>
  );
}

function Changes({ events }: { events: Event[] }) {
  return (
    <section class="panel" aria-labelledby="changes-title">
      <div class="tools"><h2 id="changes-title">Changes</h2><span class="soft">the newest first; a change is final, and never revised</span></div>
      <ol class="changes" id="changes">
        {events.length === 0 && <li class="nothing">None since this page was opened.</li>}
        {events.map((event) => <li><span class={`sign ${sign(event)}`}>{sign(event)}</span> <code>{describe(event)}</code></li>)}
      </ol>
    </section>
  );
}

const sign = (event: Event) => (event.change === undefined ? event.event : /^(-|delete|remove)/.test(String(event.change)) ? "−" : "+");

function describe(event: Event): string {
  const { event: _kind, cursor: _cursor, query: _query, id: _id, change: _change, ...rest } = event;
  return JSON.stringify(rest);
}

function Plan({ query }: { query: Query }) {
  const level = (route.value.params.get("plan") ?? "logical") as Level;
  const [plan, setPlan] = useState<string | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => {
    let on = true;
    call("get", "/v1/queries/{query}/plan", { path: { query: query.id }, query: { level } }).then(
      (found) => { if (on) { setPlan(found.plan); setError(null); } },
      (problem) => { if (on) setError(fieldsOf(problem)); },
    );
    return () => { on = false; };
  }, [query.id, level]);
  return (
    <section class="panel" aria-labelledby="plan-title">
      <div class="tools">
        <h2 id="plan-title">Plan</h2>
        <select aria-label="Level of the plan" value={level} onChange={(event) => change({ plan: event.currentTarget.value })}>
          {LEVELS.filter((one) => isAdmin.value || !["shared", "runtime"].includes(one)).map((one) => <option>{one}</option>)}
        </select>
        <span class="soft">{EXPLAINED[level]}</span>
        {isAdmin.value && <a href={link("plan", "", { query: query.name })}>where it stands in the shared plan</a>}
      </div>
      {error ? <ProblemBox error={error} /> : <pre class="plan">{plan ?? "…"}</pre>}
    </section>
  );
}

const EXPLAINED: Record<Level, string> = {
  logical: "the operators of the query",
  syntax: "the query as it was read",
  rewritten: "what is matched while elements arrive, and what is left for the answer",
  shared: "what it shares with other queries",
  runtime: "the same with figures of now",
  approximation: "what may make its answers inexact, and by how much",
};

function About({ query }: { query: Query }) {
  const facts: [string, string][] = [
    ["id", String(query.id)],
    ["registered", moment(query.registered_at)],
    ["followed", query.changes ? `${query.changes.newest} changes, up to ${moment(query.changes.up_to)}` : "by nobody"],
    ...Object.entries(query.options).map(([key, value]): [string, string] => [key, JSON.stringify(value)]),
  ];
  return (
    <section class="panel" aria-labelledby="about-title">
      <div class="tools"><h2 id="about-title">What it is</h2></div>
      <dl class="facts">{facts.map(([key, value]) => <div><dt>{key}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

/** What it costs and shares, looked at anew every few seconds. */
function Costs({ query }: { query: Query }) {
  const [cost, setCost] = useState<QueryCost | null>(null);
  useEffect(() => {
    let on = true;
    const look = () => call("get", "/v1/costs", { query: { queries: String(query.id) } }).then(
      ({ queries }) => { if (on) setCost(queries[0] ?? null); }, () => undefined, // the header says that the server is away
    );
    void look();
    const timer = setInterval(() => { if (!document.hidden) void look(); }, 3000);
    return () => { on = false; clearInterval(timer); };
  }, [query.id]);
  const facts: [string, string, string][] = cost ? [
    ["matching", spell(cost.matching), "its share of the time that elements took to be matched as they came"],
    ["matches", bytes(cost.matches), "its share of the matches that are stored"],
    ["asked", `${count(cost.invocations)} times, in ${spell(cost.answering)}`, "how often its answer was asked for, and how long that took"],
  ] : [];
  if (cost?.followed) facts.push(
    ["memory", bytes(cost.memory), "its share of the state that operators keep in memory"],
    ["in files", bytes(cost.files), "its share of the state that did not fit"],
    ["time", spell(cost.seconds), "its share of the time that operators took since they were made"],
    ["rows", count(cost.rows), "that its operators keep, whoever else has them"],
    ["operators", `${cost.operators}, ${cost.shared} of them shared`, "a shared operator works once for all queries that have it"],
    ["pattern", cost.pattern!.toLowerCase(), "when rows of its answer leave"],
    ["changes", count(cost.changes), "that it had"],
    ["exact", cost.exact ? "yes" : "a part", "whether its changes are all there are"],
  );
  return (
    <section class="panel" aria-labelledby="costs-title" id="costs">
      <div class="tools">
        <h2 id="costs-title">What it costs</h2>
        <span class="soft">{cost?.followed || query.changes ? "of matching and answers since the server was started, of operators since it is followed"
          : "Nobody follows it: it costs what its predicate takes when elements come, and each answer when it is asked."}</span>
      </div>
      <dl class="facts">{facts.map(([key, value, title]) => <div title={title}><dt>{key}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

function take(query: Query, at: string | null): Taken {
  const path = address("/v1/queries/{query}/result", { query: query.name }, { at });
  const when = at ? `at=${JSON.stringify(at)}` : "";
  return {
    fetch: (accept) => send("get", path, accept),
    curl: `curl -s ${shell(base() + path.slice(1))} -H "Authorization: Bearer $MILLPOND_TOKEN"`,
    python: `import millpond\n\nwith millpond.connect(${JSON.stringify(base())}) as pond:\n`
      + `    for row in pond.query(${JSON.stringify(query.name)}).invoke(${when}).rows():\n        print(row)\n`,
  };
}
