// Queries: all there are, found as somebody types, changed one by one or together.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type ErrorFields, type ListedQuery, type QueryCost, Problem, call } from "../api";
import { bytes, count, many, moment, spell } from "../format";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { VirtualTable } from "../parts/rows";
import { change, link, route } from "../route";
import { canWrite, status } from "../session";

/** The rows of the first page, and of each further page: few first, so that a search is seen at once. */
const FIRST = 100, MORE = 2000;
/** How long nobody types before the search begins, in milliseconds. */
const TYPING_MS = 80;
const loaded = signal<ListedQuery[]>([]);
const total = signal(0);
const took = signal<number | null>(null);
const chosen = signal<Set<number>>(new Set());
/** What queries cost, by id; of those that were seen. */
const costs = signal<Map<number, QueryCost>>(new Map());
let looking = false;
let next: number | null = null;
let turn = 0;
let asked: AbortController | null = null;
let filling = false;

type State = "active" | "inactive" | "suspended";
interface Filter { containing: string; owner: string; tag: string; state: State | ""; sort: string }

function readFilter(): Filter {
  const { params } = route.value;
  const text = (name: string) => params.get(name) ?? "";
  return { containing: text("containing"), owner: text("owner"), tag: text("tag"), state: text("state") as State | "", sort: text("sort") || "id" };
}

const toQuery = ({ sort, ...filter }: Filter) => ({ ...without(filter), sort: sort as "id" });
const without = (filter: Omit<Filter, "sort">) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value)) as {
  containing?: string; owner?: string; tag?: string; state?: State;
};

async function find(filter: Filter): Promise<void> {
  const mine = ++turn;
  asked?.abort();
  asked = new AbortController();
  const begun = performance.now();
  const page = await call("get", "/v1/queries", { query: { ...toQuery(filter), limit: FIRST }, signal: asked.signal });
  if (mine !== turn) return;
  took.value = performance.now() - begun;
  loaded.value = page.queries;
  total.value = page.total;
  next = page.next;
}

/** Reads on until a row is there. */
async function fill(filter: Filter, upto: number): Promise<void> {
  if (filling) return;
  filling = true;
  try {
    const mine = turn;
    while (next !== null && loaded.value.length < upto) {
      const limit = upto - loaded.value.length > MORE ? 10_000 : MORE;
      const page = await call("get", "/v1/queries", { query: { ...toQuery(filter), after: next, limit } });
      if (mine !== turn) return;
      loaded.value = [...loaded.value, ...page.queries];
      next = page.next;
    }
  } finally {
    filling = false;
  }
}

/** What queries cost; those that somebody has dropped leave the choice and the list. */
async function readCosts(ids: number[]): Promise<QueryCost[]> {
  try {
    return (await call("get", "/v1/costs", { query: { queries: ids.join(","), limit: 1000 } })).queries;
  } catch (problem) {
    // One that is gone is refused with all: halves of the list tell which it is.
    if (!(problem instanceof Problem) || problem.status < 400 || problem.status >= 500) throw problem;
    if (ids.length > 1) {
      const half = ids.length >> 1;
      return [...await readCosts(ids.slice(0, half)), ...await readCosts(ids.slice(half))];
    }
    chosen.value = new Set([...chosen.value].filter((id) => id !== ids[0]));
    const left = loaded.value.filter((query) => query.id !== ids[0]);
    total.value -= loaded.value.length - left.length;
    loaded.value = left;
    return [];
  }
}

/** Looks what the rows that are seen cost. */
async function weigh(start: number, end: number): Promise<void> {
  const seen = loaded.value.slice(start, end).map((query) => query.id);
  if (looking || !seen.length) return;
  looking = true;
  try {
    const found = await readCosts(seen);
    const next = new Map(costs.value);
    for (const id of seen) next.delete(id);
    for (const cost of found) next.set(cost.id, cost);
    costs.value = next;
  } catch {
    // The server is away: the header says so.
  } finally {
    looking = false;
  }
}

export function Queries() {
  const filter = readFilter();
  const [error, setError] = useState<ErrorFields | null>(null);
  /** Why the last action was refused; it stays until the next one. */
  const [refused, setRefused] = useState<ErrorFields | null>(null);
  const [said, setSaid] = useState("");
  const key = JSON.stringify(filter);
  const attempt = async (act: () => Promise<void>) => {
    try {
      await act();
      setError(null);
    } catch (problem) {
      if (problem instanceof DOMException) return; // another search has begun
      setError(fieldsOf(problem));
    }
  };
  useEffect(() => {
    chosen.value = new Set();
    const timer = setTimeout(() => void attempt(() => find(filter)), TYPING_MS);
    return () => clearTimeout(timer);
  }, [key]);
  const seen = useRef<[number, number]>([0, FIRST]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) void weigh(...seen.current); }, 3000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => { void weigh(...seen.current); }, [loaded.value]);
  const there = status.value?.queries;
  const before = useRef(there);
  useEffect(() => {
    // Others make and drop queries too; the list follows unless somebody has scrolled on.
    if (before.current !== undefined && before.current !== there && loaded.value.length <= FIRST) {
      void attempt(() => find(readFilter()));
    }
    before.current = there;
  }, [there]);
  const act = async (what: string, work: (names: string) => Promise<{ queries: number }>) => {
    setRefused(null);
    setSaid("");
    try {
      const { queries } = await work([...chosen.value].join(","));
      setSaid(`${many(queries, "query", "queries")} ${what}`);
      chosen.value = new Set();
    } catch (problem) {
      setRefused(fieldsOf(problem));
      if (chosen.value.size) await readCosts([...chosen.value].slice(0, 1000)).catch(fieldsOf);
    }
    await attempt(() => find(filter));
  };
  const alter = (options: Record<string, unknown>, what: string) =>
    act(what, (queries) => call("patch", "/v1/queries", { query: { queries }, body: options as never }));
  const picked = chosen.value.size;
  return (
    <main>
      <section class="panel tall" aria-labelledby="queries-title">
        <div class="tools">
          <h2 id="queries-title">Queries</h2>
          <input type="search" id="search" placeholder="Find in name or text" aria-label="Find in name or text"
            value={filter.containing} onInput={(event) => change({ containing: event.currentTarget.value })} />
          <input placeholder="owner" aria-label="Owner" size={10} value={filter.owner} onChange={(event) => change({ owner: event.currentTarget.value.trim() })} />
          <input placeholder="tag" aria-label="Tag" size={10} value={filter.tag} onChange={(event) => change({ tag: event.currentTarget.value.trim() })} />
          <select aria-label="State" value={filter.state} onChange={(event) => change({ state: event.currentTarget.value })}>
            <option value="">any state</option><option>active</option><option>inactive</option><option>suspended</option>
          </select>
          <select aria-label="Order" value={filter.sort} onChange={(event) => change({ sort: event.currentTarget.value })}>
            <option value="id">oldest first</option><option value="-id">newest first</option>
            <option value="name">by name</option><option value="owner">by owner</option>
          </select>
          <span class="soft" id="found" aria-live="polite">{count(total.value)} found{took.value !== null && ` in ${Math.round(took.value)} ms`}</span>
        </div>
        {canWrite.value && (
          <div class="tools bulk">
            <span class="soft">{picked ? `${count(picked)} chosen` : "Choose queries to change them together"}</span>
            <button type="button" disabled={!picked} onClick={() => alter({ active: true }, "activated")}>Activate</button>
            <button type="button" disabled={!picked} onClick={() => alter({ active: false }, "deactivated")}>Deactivate</button>
            <button type="button" disabled={!picked} onClick={() => {
              const weight = prompt("How much more than others are they worth? 1 is usual:", "1");
              if (weight === null) return;
              if (Number(weight) > 0 && Number.isFinite(Number(weight))) void alter({ weight: Number(weight) }, "weighed");
              else setSaid(`A weight is a number greater than 0; "${weight}" is none. Nothing was changed.`);
            }}>Weigh</button>
            <button type="button" disabled={!picked} onClick={() => {
              const given = prompt("Which option, and its value? For example: max_rows = 1000", "");
              const [, name, value] = /^\s*(\w+)\s*=\s*(.+?)\s*$/.exec(given ?? "") ?? [];
              if (name && value) void alter({ [name]: read(value) }, "altered");
            }}>Alter</button>
            <button type="button" disabled={!picked} onClick={() => {
              const tags = prompt("Their tags, with commas between them:", "");
              if (tags !== null) void alter({ tags }, "tagged");
            }}>Tag</button>
            <button type="button" class="danger" disabled={!picked} onClick={() => {
              if (confirm(`Drop ${many(picked, "query", "queries")} for good?`)) {
                void act("dropped", (queries) => call("delete", "/v1/queries", { query: { queries } }));
              }
            }}>Drop</button>
            <span class="soft" role="status">{said}</span>
          </div>
        )}
        {refused && <ProblemBox error={refused} />}
        {error && <ProblemBox error={error} />}
        {total.value === 0 && took.value !== null ? (
          <p class="nothing">{Object.keys(without({ ...filter, sort: undefined } as never)).length ? "No query is like that." : <>No queries yet. <a href={link("write")}>Write one</a> and press Register.</>}</p>
        ) : (
          <VirtualTable total={total.value} label="Rows of queries" columns={11}
            onSeen={(start, end) => {
              if (end > loaded.value.length) void attempt(() => fill(filter, end));
              seen.current = [start, end];
              void weigh(start, end);
            }}
            rowClass={(i) => (loaded.value[i] && chosen.value.has(loaded.value[i].id) ? "chosen" : "")}
            head={<>
              <th class="box">{canWrite.value && <input type="checkbox" aria-label="Choose all that are shown"
                checked={picked > 0 && picked === loaded.value.length}
                onChange={(event) => { chosen.value = new Set(event.currentTarget.checked ? loaded.value.map((q) => q.id) : []); }} />}</th>
              <th scope="col">name</th><th scope="col">state</th><th scope="col">owner</th><th scope="col">tags</th>
              <th scope="col" title="When rows of the answer leave: never, in the order they came, when they expire, or at any time.">pattern</th>
              <th scope="col" title="Up to when its changes are known; – while nobody follows it.">last answer</th>
              <th scope="col" title="Whether its changes are all there are.">exact</th>
              <th scope="col" class="number" title="Its share of the state of operators, in memory and in files, and of stored matches.">bytes</th>
              <th scope="col" class="number" title="Its share of the time that operators and matching took, and the time that its answers took.">time</th>
              <th scope="col">text</th>
            </>}
            row={(i) => <Row query={loaded.value[i]} />} />
        )}
      </section>
    </main>
  );
}

/** A value as somebody types it: a number, true or false, a text. */
function read(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text.replace(/^'(.*)'$/, "$1");
  }
}

function Row({ query }: { query: ListedQuery | undefined }) {
  if (!query) return <td class="soft" colSpan={11}>…</td>;
  const state = query.suspended ? "suspended" : query.active ? "active" : "inactive";
  const toggle = (on: boolean) => {
    const set = new Set(chosen.value);
    if (on) set.add(query.id);
    else set.delete(query.id);
    chosen.value = set;
  };
  const tags = query.options.tags;
  const cost = costs.value.get(query.id);
  return (
    <>
      <td class="box">{canWrite.value && <input type="checkbox" aria-label={`Choose ${query.name}`} checked={chosen.value.has(query.id)}
        onChange={(event) => toggle(event.currentTarget.checked)} />}</td>
      <td><a href={link("query", query.name)}>{query.name}</a></td>
      <td><span class={`tag ${state}`} title={query.suspended ?? undefined}>{state}</span></td>
      <td>{String(query.options.owner ?? "")}</td>
      <td>{Array.isArray(tags) ? tags.join(", ") : String(tags ?? "")}</td>
      <td>{cost?.pattern?.toLowerCase().replace("_", " ") ?? "–"}</td>
      <td title={`Registered ${moment(query.registered_at).slice(0, 19)}`}>{cost?.up_to ? moment(cost.up_to).slice(0, 19) : "–"}</td>
      <td>{cost?.followed ? <span class={`tag ${cost.exact ? "active" : "suspended"}`}>{cost.exact ? "exact" : "a part"}</span> : "–"}</td>
      <td class="number">{cost ? bytes(cost.memory + cost.files + cost.matches) : "–"}</td>
      <td class="number">{cost ? spell(cost.seconds + cost.matching + cost.answering) : "–"}</td>
      <td><code title={query.cql}>{query.cql.replace(/\s+/g, " ")}</code></td>
    </>
  );
}
