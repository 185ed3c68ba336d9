// System: what is wrong, on top; how much comes, how late, what is refused; and the entities.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Answer, type Entity, type ErrorFields, type History, type QueryCosts, call } from "../api";
import { bytes, cell, count, duration, many, moment, perSecond, seconds, share, spell } from "../format";
import { AnswerBox } from "../parts/answer";
import { draw } from "../parts/chart";
import { SettingButtons } from "../parts/entity";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { VirtualTable } from "../parts/rows";
import { change, link, route } from "../route";
import { isAdmin, rates, status } from "../session";

export function System() {
  const shown = status.value;
  const rejectsOf = route.value.params.get("rejects");
  if (!shown) return <main><section class="panel"><p class="nothing">Waiting for the server …</p></section></main>;
  const wrong = [...shown.problems, ...shown.warnings];
  return (
    <main>
      <section class={`panel ${wrong.length ? "" : "calm"}`} aria-labelledby="wrong-title">
        <div class="tools"><h2 id="wrong-title">{wrong.length ? "What is wrong" : "Nothing is wrong"}</h2></div>
        {wrong.map((error) => <ProblemBox error={error} />)}
      </section>
      <section class="panel" aria-labelledby="rate-title">
        <div class="tools"><h2 id="rate-title">Rows per second</h2><span class="soft">since this page was opened</span></div>
        <Throughput />
      </section>
      <section class="panel" aria-labelledby="streams-title">
        <div class="tools"><h2 id="streams-title">Streams</h2></div>
        <div class="scroll short" tabIndex={0} role="region" aria-label="Rows of streams">
          <table>
            <thead><tr>
              <th scope="col">stream</th><th scope="col">state</th><th scope="col" class="number">rows/s</th><th scope="col" class="number">rows</th>
              <th scope="col" class="number">kept</th><th scope="col" class="number">rejects</th>
              <th scope="col" title="No element with a timestamp up to the heartbeat can come any more.">heartbeat</th>
              <th scope="col" class="number" title="How far the heartbeat is behind the stream that is farthest.">behind</th>
              <th scope="col" class="number" title="Distinct predicates that its elements are matched with.">slots</th>
            </tr></thead>
            <tbody>
              {shown.streams.map((stream) => (
                <tr>
                  <td><code>{stream.name}</code></td>
                  <td><span class={`tag ${stream.state}`} title={stream.reason ?? undefined}>{stream.state}</span></td>
                  <td class="number">{perSecond(rates.value.get(stream.name)?.rate.at(-1))}</td>
                  <td class="number">{count(stream.rows)}</td>
                  <td class="number">{count(stream.kept)}</td>
                  <td class="number">{stream.rejected > 0 && isAdmin.value
                    ? <a href={link("system", "", { rejects: stream.name })}>{count(stream.rejected)}</a> : count(stream.rejected)}</td>
                  <td>{moment(stream.heartbeat)}</td>
                  <td class="number">{behind(stream.heartbeat, shown.streams.map((s) => s.heartbeat))}</td>
                  <td class="number">{count(stream.slots)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      {rejectsOf && <Rejects stream={rejectsOf} />}
      {isAdmin.value && <Past />}
      {isAdmin.value && <Overload />}
      {shown.sinks.length > 0 && <Sinks />}
      <Shares />
      {isAdmin.value && <Entities />}
      <section class="panel" aria-labelledby="server-title">
        <div class="tools"><h2 id="server-title">Server</h2></div>
        <dl class="facts">
          {([["version", shown.version], ["up", duration(shown.uptime_s)], ["epoch", count(shown.epoch)], ["queries", count(shown.queries)],
            ["followed", count(shown.followed)], ["relations", count(shown.relations)],
            ...Object.entries(shown.runtime).map(([key, value]) => [key, cell(value)])] as [string, string][])
            .map(([key, value]) => <div><dt>{key}</dt><dd>{value}</dd></div>)}
        </dl>
      </section>
    </main>
  );
}

function behind(heartbeat: string | null, all: (string | null)[]): string {
  const known = all.flatMap((one) => (one ? [seconds(one)] : [])).filter(Number.isFinite);
  if (!heartbeat || !known.length) return "–";
  const lag = Math.max(...known) - seconds(heartbeat);
  return Number.isFinite(lag) ? (lag < 1 ? "0 s" : duration(lag)) : "–";
}

function Throughput() {
  const box = useRef<HTMLDivElement>(null);
  const names = [...rates.value.keys()].slice(0, 6);
  useEffect(() => {
    const element = box.current;
    if (!element || !names.length) return undefined;
    const table = () => {
      const at = [...new Set(names.flatMap((name) => rates.peek().get(name)?.at ?? []))].sort((a, b) => a - b);
      const series = names.map((name) => {
        const one = rates.peek().get(name);
        const byTime = new Map(one?.at.map((time, i) => [time, one.rate[i]!]));
        return at.map((time) => byTime.get(time) ?? null);
      });
      return [at, ...series] as never;
    };
    const drawn = draw(element, table(), { form: "line", time: true, names: null, labels: ["time", ...names], height: 180 });
    const stop = rates.subscribe(() => drawn.plot.setData(table()));
    return () => { stop(); drawn.end(); };
  }, [names.join()]);
  return names.length ? <div class="chart" ref={box} role="img" aria-label="Rows per second of each stream" />
    : <p class="nothing">Figures come with the second look, in two seconds.</p>;
}

/** What the server sampled, in groups of one unit each. */
const GROUPS: { title: string; wanted: (name: string) => boolean; scale?: number }[] = [
  { title: "Rows per second", wanted: (name) => name.startsWith("rows/s of ") },
  { title: "Matches, rejects and epochs per second", wanted: (name) => /^(matches|rejects|epochs)\/s$/.test(name) },
  { title: "Memory and disk, in MB", wanted: (name) => /^(process memory|state in|disk of|bytes waiting)/.test(name), scale: 1e-6 },
  { title: "Processor share, rungs of overload", wanted: (name) => /^(processor share|rungs)/.test(name) },
  { title: "Freshness: seconds until the last rows were visible, and that followed queries are behind", wanted: (name) => name.startsWith("seconds ") },
  { title: "Tickets: the share of elements that each filter lets through", wanted: (name) => name.startsWith("share let through") },
];

function Past() {
  const span = route.value.params.get("span") === "week" ? "week" : "hour";
  const [found, setFound] = useState<History | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => {
    let on = true;
    const look = () => call("get", "/v1/history", { query: { span } }).then(
      (history) => { if (on) { setFound(history); setError(null); } }, (problem) => { if (on) setError(fieldsOf(problem)); },
    );
    void look();
    const timer = setInterval(() => { if (!document.hidden) void look(); }, 10_000);
    return () => { on = false; clearInterval(timer); };
  }, [span]);
  return (
    <section class="panel" aria-labelledby="past-title" id="past">
      <div class="tools">
        <h2 id="past-title">Minutes and days</h2>
        <select aria-label="How far back" value={span} onChange={(event) => change({ span: event.currentTarget.value })}>
          <option value="hour">last hour</option><option value="week">last week</option>
        </select>
        <span class="soft">{found && `${count(found.at.length)} samples, one every ${duration(found.every_seconds)}, since the server was started`}</span>
      </div>
      {error && <ProblemBox error={error} />}
      {found && found.at.length < 2 && <p class="nothing">The first samples come within twenty seconds.</p>}
      {found && found.at.length > 1 && GROUPS.map((group) => <Series history={found} {...group} />)}
    </section>
  );
}

function Series({ history, title, wanted, scale = 1 }: { history: History; title: string; wanted: (name: string) => boolean; scale?: number }) {
  const box = useRef<HTMLDivElement>(null);
  const names = Object.keys(history.series).filter(wanted).slice(0, 6);
  useEffect(() => {
    const element = box.current;
    if (!element || !names.length) return undefined;
    const series = names.map((name) => history.series[name]!.map((value) => (value === null ? null : value * scale)));
    const labels = ["time", ...names.map((name) => name.replace(/^(rows\/s of|share let through by) /, ""))];
    const drawn = draw(element, [history.at, ...series] as never, { form: "line", time: true, names: null, labels, height: 150 });
    return () => drawn.end();
  }, [history, names.join()]);
  return names.length ? <figure><figcaption>{title}</figcaption><div class="chart" ref={box} role="img" aria-label={title} /></figure> : null;
}

/** The ladder of overload: what was done, the newest first. */
function Overload() {
  const [rows, setRows] = useState<Answer | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  const look = () => call("post", "/v1/statements", { body: { text: "SELECT * FROM system$actions [ROWS 200]" } }).then(
    ({ results }) => {
      const found = results[0] as Answer;
      setRows({ ...found, rows: [...found.rows].reverse() });
      setError(null);
    }, (problem) => setError(fieldsOf(problem)),
  );
  useEffect(() => { void look(); }, []);
  return (
    <section class="panel" aria-labelledby="overload-title" id="overload">
      <div class="tools"><h2 id="overload-title">Actions of overload</h2>
        <span class="soft">each step that the pond took when there was too much to do, and back</span>
        <span class="fill" /><button type="button" onClick={() => void look()}>Look again</button></div>
      {error && <ProblemBox error={error} />}
      {rows && rows.rows.length > 0 && <AnswerBox rows={rows} facts={rows} name="actions" />}
      {rows?.rows.length === 0 && <p class="nothing">None: there was never more to do than could be done.</p>}
    </section>
  );
}

function Rejects({ stream }: { stream: string }) {
  const [rows, setRows] = useState<Answer | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => {
    const text = `SELECT * FROM "${stream}$rejects" [ROWS 500]`;
    call("post", "/v1/statements", { body: { text } }).then(
      ({ results }) => { setRows(results[0] as Answer); setError(null); }, (problem) => setError(fieldsOf(problem)),
    );
  }, [stream]);
  return (
    <section class="panel" aria-labelledby="rejects-title">
      <div class="tools"><h2 id="rejects-title">Rejects of {stream}</h2><span class="soft">rows that did not become elements, with the reason</span>
        <span class="fill" /><button type="button" onClick={() => change({ rejects: "" })}>Close</button></div>
      {error && <ProblemBox error={error} />}
      {rows && <AnswerBox rows={rows} facts={rows} name={`rejects_${stream}`} />}
    </section>
  );
}

const ORDERS = {
  matching: "most matching first", answering: "most time of answers first", seconds: "most time of operators first",
  memory: "most memory first", files: "most in files first", matches: "most matches first", changes: "most changes first",
} as const;

/** Which queries take the most, of processor, memory and disk. */
function Shares() {
  const given = route.value.params.get("most") as keyof typeof ORDERS | null;
  const sort = given && given in ORDERS ? given : "memory";
  const [found, setFound] = useState<QueryCosts | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => {
    let on = true;
    const look = () => call("get", "/v1/costs", { query: { sort, limit: 50 } }).then(
      (costs) => { if (on) { setFound(costs); setError(null); } }, (problem) => { if (on) setError(fieldsOf(problem)); },
    );
    void look();
    const timer = setInterval(() => { if (!document.hidden) void look(); }, 3000);
    return () => { on = false; clearInterval(timer); };
  }, [sort]);
  const columns: [string, (one: QueryCosts["queries"][number] | QueryCosts) => number, (n: number) => string, string][] = [
    ["matching", (one) => one.matching, spell, "Its share of the time that elements took to be matched as they came."],
    ["answers", (one) => one.answering, spell, "The time that its answers took when they were asked for."],
    ["operators", (one) => one.seconds, spell, "Its share of the time that the operators of followed queries took."],
    ["memory", (one) => one.memory, bytes, "Its share of the state of operators in memory."],
    ["in files", (one) => one.files, bytes, "Its share of the state of operators that did not fit."],
    ["matches", (one) => one.matches, bytes, "Its share of the matches that are stored on disk."],
  ];
  return (
    <section class="panel" aria-labelledby="shares-title" id="shares">
      <div class="tools">
        <h2 id="shares-title">Processor, memory and disk by query</h2>
        <select aria-label="What is most first" value={sort} onChange={(event) => change({ most: event.currentTarget.value })}>
          {Object.entries(ORDERS).map(([id, said]) => <option value={id}>{said}</option>)}
        </select>
        <span class="soft">{found && `${many(found.total, "query", "queries")}, ${count(found.followed)} of them followed; with the share of each in all of them`}</span>
      </div>
      {error && <ProblemBox error={error} />}
      {found && found.queries.length > 0 && (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Rows of shares">
          <table>
            <thead><tr><th scope="col">query</th>{columns.map(([name, , , title]) => <th scope="col" class="number" title={title}>{name}</th>)}
              <th scope="col" class="number">asked</th><th scope="col" class="number">changes</th></tr></thead>
            <tbody>
              <tr><th scope="row">all of them</th>{columns.map(([, of, tell]) => <td class="number">{tell(of(found))}</td>)}<td class="number">{count(found.invocations)}</td><td /></tr>
              {found.queries.map((one) => (
                <tr><td><a href={link("query", one.name)}>{one.name}</a></td>
                  {columns.map(([, of, tell]) => <td class="number">{tell(of(one))} <small class="soft">{share(of(one), of(found))}</small></td>)}
                  <td class="number">{count(one.invocations)}</td><td class="number">{one.followed ? count(one.changes) : "–"}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found?.total === 0 && <p class="nothing">No query yet.</p>}
    </section>
  );
}

/** What an entity takes: seconds of a processor, bytes of memory, bytes of disk. */
function take({ id, figures }: Entity): Record<"processor" | "memory" | "disk", number> {
  const of = (name: string) => Number(figures[name] ?? 0);
  const kind = id.slice(0, id.indexOf(":"));
  const inFiles = /^(segments|join|stem|relation)$/.test(kind) || id === "queue:inbox";
  return {
    processor: of("seconds"),
    memory: kind === "totals" ? of("bytes in memory") : inFiles || kind === "memory" ? 0 : of("bytes"),
    disk: (inFiles ? of("bytes") : 0) + of("match bytes") + of("bytes on disk") + (kind === "operator" ? of("bytes in files") : 0) + of("waiting bytes"),
  };
}

function Sinks() {
  return (
    <section class="panel" aria-labelledby="sinks-title">
      <div class="tools"><h2 id="sinks-title">Sinks</h2></div>
      <div class="scroll short" tabIndex={0} role="region" aria-label="Rows of sinks">
        <table>
          <thead><tr><th scope="col">sink</th><th scope="col">of</th><th scope="col">to</th><th scope="col">state</th>
            <th scope="col" class="number">delivered</th><th scope="col" class="number">failures</th></tr></thead>
          <tbody>{status.value!.sinks.map((sink) => (
            <tr><td>{sink.name}</td><td>{sink.of}</td><td>{sink.to}</td><td><span class={`tag ${sink.state}`}>{sink.state}</span></td>
              <td class="number">{count(sink.changes)}</td><td class="number">{count(sink.failures)}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

function Entities() {
  const [all, setAll] = useState<Entity[]>([]);
  const [error, setError] = useState<ErrorFields | null>(null);
  const wanted = (route.value.params.get("entity") ?? "").toLowerCase();
  const look = () => call("get", "/v1/entities").then(
    ({ entities }) => { setAll(entities); setError(null); }, (problem) => setError(fieldsOf(problem)),
  );
  useEffect(() => { void look(); }, []);
  const by = route.value.params.get("by") as "processor" | "memory" | "disk" | null;
  const taken = useMemo(() => new Map(all.map((one) => [one.id, take(one)])), [all]);
  const sum = (what: "processor" | "memory" | "disk") => [...taken.values()].reduce((total, one) => total + one[what], 0);
  const sums = useMemo(() => ({ processor: sum("processor"), memory: sum("memory"), disk: sum("disk") }), [taken]);
  const found = all.filter((one) => !wanted || `${one.id} ${one.of}`.toLowerCase().includes(wanted));
  if (by) found.sort((a, b) => taken.get(b.id)![by] - taken.get(a.id)![by]);
  return (
    <section class="panel" aria-labelledby="entities-title">
      <div class="tools">
        <h2 id="entities-title">Control tables, and what each takes</h2>
        <input type="search" placeholder="Find an operator, queue or synopsis" aria-label="Find an entity" value={wanted}
          onInput={(event) => change({ entity: event.currentTarget.value })} />
        <select aria-label="Order of entities" value={by ?? ""} onChange={(event) => change({ by: event.currentTarget.value })}>
          <option value="">by kind and name</option><option value="processor">most processor first</option>
          <option value="memory">most memory first</option><option value="disk">most disk first</option>
        </select>
        <button type="button" onClick={() => void look()}>Look again</button>
        <span class="soft">{count(found.length)} of {count(all.length)}: {spell(sums.processor)} of processors, {bytes(sums.memory)} of memory, {bytes(sums.disk)} of disk</span>
      </div>
      {error && <ProblemBox error={error} />}
      <VirtualTable total={found.length} height={34} label="Rows of control tables" columns={8}
        head={<><th scope="col">entity</th><th scope="col">kind</th><th scope="col">of</th><th scope="col" class="number">processor</th>
          <th scope="col" class="number">memory</th><th scope="col" class="number">disk</th><th scope="col">settings</th><th scope="col">figures</th></>}
        row={(i) => {
          const one = found[i]!;
          const figures = Object.entries(one.figures).map(([key, value]) => `${key} ${cell(value)}`).join(" · ");
          return (
            <>
              <td><code>{one.id}</code></td><td>{one.kind}</td><td>{one.of}</td>
              {(["processor", "memory", "disk"] as const).map((what) => {
                const part = taken.get(one.id)![what];
                return <td class="number">{part ? <>{what === "processor" ? spell(part) : bytes(part)} <small class="soft">{share(part, sums[what])}</small></> : "–"}</td>;
              })}
              <td><SettingButtons entity={one} done={() => void look()} failed={setError} /></td>
              <td title={figures}>{figures}</td>
            </>
          );
        }} />
    </section>
  );
}
