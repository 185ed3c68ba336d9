// Plan: the one shared plan as a graph on a canvas of its own; laid out by a worker.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ErrorFields, type PlanGraph, type PlanNode, type Trace, call } from "../api";
import { cell, count } from "../format";
import type { Asked, Placed } from "../layout";
import { PlanDocument } from "../parts/document";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { change, link, route } from "../route";
import { pause } from "../session";

const EVERY_MS = 2000;
/** Groups of more nodes than this are one node until they are opened. */
const MOST_OPEN = 3;
const HEIGHT = 44, CHAR = 7.2, LEAST = 110, MOST = 250;

interface Box extends PlanNode { members: PlanNode[] }
interface Drawn { boxes: Box[]; edges: { source: string; target: string; elements: number | null }[] }

/** The graph with its large groups as one box each, unless opened or what is looked for. */
export function collapse(graph: PlanGraph, open: Set<string>, wanted: string): Drawn {
  const sizes = new Map<string, PlanNode[]>();
  for (const node of graph.nodes) sizes.set(node.group, [...(sizes.get(node.group) ?? []), node]);
  const stands = new Map<string, string>();
  const boxes = new Map<string, Box>();
  for (const node of graph.nodes) {
    const members = sizes.get(node.group)!;
    const whole = members.length > MOST_OPEN && !open.has(node.group) && !matches(node, wanted) && !node.lit;
    const id = whole ? `group:${node.group}` : node.id;
    stands.set(node.id, id);
    const box = boxes.get(id);
    if (box) box.members.push(node);
    else boxes.set(id, { ...node, id, label: node.label, members: [node], figures: node.figures });
  }
  for (const box of boxes.values()) {
    if (box.id.startsWith("group:")) {
      box.label = `${count(box.members.length)} ${box.group}`;
      box.figures = {};
      box.queries = box.members.flatMap((member) => member.queries);
    }
  }
  const edges = new Map<string, Drawn["edges"][number]>();
  for (const edge of graph.edges) {
    const source = stands.get(edge.source)!, target = stands.get(edge.target)!;
    if (!source || !target || source === target) continue;
    const key = `${source} ${target}`;
    const before = edges.get(key);
    edges.set(key, { source, target, elements: Math.max(before?.elements ?? -1, edge.elements ?? -1) });
  }
  return { boxes: [...boxes.values()], edges: [...edges.values()].map((e) => ({ ...e, elements: e.elements! < 0 ? null : e.elements })) };
}

const matches = (node: { id: string; label: string; queries: string[] }, wanted: string) =>
  wanted !== "" && [node.id, node.label, ...node.queries].some((text) => text.toLowerCase().includes(wanted));

const widthOf = (box: Box) => Math.min(MOST, Math.max(LEAST, Math.max(box.label.length * CHAR, second(box).length * 6) + 26));

export function Plan() {
  const { params } = route.value;
  const wanted = (params.get("find") ?? "").toLowerCase();
  const query = params.get("query") ?? "";
  const chosen = params.get("node");
  const [graph, setGraph] = useState<PlanGraph | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  const [open, setOpen] = useState<Set<string>>(new Set());
  const [adopted, setAdopted] = useState(0);
  const before = useRef<{ at: number; elements: Map<string, number> } | null>(null);
  const [rates, setRates] = useState<Map<string, number>>(new Map());
  useEffect(() => {
    let on = true;
    void (async () => {
      while (on) {
        const begun = performance.now();
        if (!document.hidden) {
          try {
            const found = await call("get", "/v1/plan/graph", { query: query ? { query } : {} });
            if (!on) return;
            setGraph(found);
            setError(null);
          } catch (problem) {
            setError(fieldsOf(problem));
          }
        }
        // A graph that takes the server long is asked for less often.
        await pause(Math.max(EVERY_MS, 10 * (performance.now() - begun)));
      }
    })();
    return () => { on = false; };
  }, [query, adopted]);
  const drawn = useMemo(() => (graph ? collapse(graph, open, wanted) : null), [graph, open, wanted]);
  useEffect(() => {
    if (!drawn) return;
    const now = performance.now() / 1000;
    const elements = new Map(drawn.edges.flatMap((e) => (e.elements === null ? [] : [[`${e.source} ${e.target}`, e.elements] as const])));
    const last = before.current;
    if (last && now - last.at > 0.5) {
      setRates(new Map([...elements].map(([key, n]) => [key, Math.max(0, n - (last.elements.get(key) ?? n)) / (now - last.at)])));
    }
    before.current = { at: now, elements };
  }, [graph]);
  const box = drawn?.boxes.find((one) => one.id === chosen);
  return (
    <main>
      <section class="panel" aria-labelledby="plan-title">
        <div class="tools">
          <h2 id="plan-title">Plan</h2>
          <input type="search" placeholder="Find a node or a query" aria-label="Find a node or a query" value={params.get("find") ?? ""}
            onInput={(event) => change({ find: event.currentTarget.value })} />
          <input placeholder="light up a query" aria-label="Light up a query" value={query} onChange={(event) => change({ query: event.currentTarget.value.trim() })} />
          <span class="soft">{graph ? `${count(graph.nodes.length)} nodes, ${count(drawn!.boxes.length)} shown` : "…"}</span>
          {open.size > 0 && <button type="button" onClick={() => setOpen(new Set())}>Close all groups</button>}
        </div>
        {error && <ProblemBox error={error} />}
        {drawn && drawn.boxes.length === 0 && <p class="nothing">No stream yet, so there is nothing to plan.</p>}
        {drawn && drawn.boxes.length > 0 && (
          <Canvas drawn={drawn} rates={rates} wanted={wanted} chosen={chosen} anyLit={drawn.boxes.some((one) => one.lit)}
            onChoose={(id) => change({ node: id })} />
        )}
      </section>
      {box && <Chosen box={box} query={query} toggle={() => {
        const next = new Set(open);
        if (next.has(box.group)) next.delete(box.group);
        else next.add(box.group);
        setOpen(next);
      }} isOpen={open.has(box.group)} />}
      <PlanDocument query={query} changed={() => setAdopted(adopted + 1)} />
      {drawn && (
        <details class="panel pad">
          <summary>The same as a list</summary>
          <ul class="plain">{drawn.boxes.slice(0, 500).map((one) => (
            <li><button type="button" class="code" onClick={() => change({ node: one.id })}>{one.kind}: {one.label}</button></li>
          ))}</ul>
        </details>
      )}
    </main>
  );
}

/** The tuples of a stream's newest batch, with the queries each of them went to. */
function Traced({ stream, query }: { stream: string; query: string }) {
  const [found, setFound] = useState<Trace | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => { setFound(null); setError(null); }, [stream, query]);
  const look = () => call("get", "/v1/plan/trace", { query: { stream, query: query || undefined } }).then(
    (trace) => { setFound(trace); setError(null); }, (problem) => setError(fieldsOf(problem)),
  );
  const columns = Object.keys(found?.tuples[0]?.values ?? {});
  return (
    <div id="traced">
      <div class="tools">
        <button type="button" onClick={() => void look()}>Trace its last batch</button>
        <span class="soft">{found && `epoch ${count(found.epoch ?? 0)}: ${count(found.rows)} tuples, the last ${found.tuples.length} of them; ${count(found.predicates)} predicates`}</span>
      </div>
      {error && <ProblemBox error={error} />}
      {found && found.tuples.length > 0 && (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Traced tuples">
          <table>
            <thead><tr>{columns.map((name) => <th scope="col">{name}</th>)}<th scope="col">went to</th></tr></thead>
            <tbody>{found.tuples.map((tuple) => (
              <tr>{columns.map((name) => <td>{cell(tuple.values[name])}</td>)}
                <td>{tuple.queries.map((name) => <><a href={link("query", name)}>{name}</a>{" "}</>)}
                  {tuple.matched > tuple.queries.length && `and ${count(tuple.matched - tuple.queries.length)} more`}
                  {tuple.matched === 0 && <span class="soft">no query</span>}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function Chosen({ box, query, toggle, isOpen }: { box: Box; query: string; toggle: () => void; isOpen: boolean }) {
  const entity = !/^(group|stream|queries|join):/.test(box.id);
  return (
    <section class="panel" aria-labelledby="chosen-title" id="chosen">
      <div class="tools">
        <h2 id="chosen-title">{box.kind}: {box.label}</h2>
        {(box.id.startsWith("group:") || isOpen) && <button type="button" onClick={toggle}>{isOpen ? "Close the group" : "Open the group"}</button>}
        {entity && <a href={link("system", "", { entity: box.id })}>its control table</a>}
        <span class="soft">{WORDS[box.kind]}</span>
      </div>
      <dl class="facts">{Object.entries(box.figures).map(([key, value]) => <div><dt>{key}</dt><dd>{typeof value === "number" ? count(value) : cell(value)}</dd></div>)}</dl>
      {box.id.startsWith("stream:") && <Traced stream={box.label} query={query} />}
      {box.queries.length > 0 && (
        <p class="pad">{box.queries.slice(0, 40).map((name) => <><a href={link("query", name)}>{name}</a>{" "}</>)}
          {Number(box.figures.queries ?? 0) > box.queries.length && "…"}</p>
      )}
    </section>
  );
}

const WORDS: Record<string, string> = {
  stream: "where elements come in",
  module: "a grouped filter: one visit decides the predicates of many queries",
  synopsis: "state that is kept: elements, or the predicates of queries",
  join: "a join that queries share, with its SteMs",
  derivation: "operators that compute changes while somebody follows",
  relation: "rows that change by statements",
  queries: "standing queries that read the same",
};
const SHADES: Record<string, string> = {
  stream: "#1591ad", module: "#e08a1e", synopsis: "#7a5cc8", join: "#c8446b", derivation: "#2e9e6b", relation: "#6b7f86", queries: "#3d6fd1",
};

interface Shown { drawn: Drawn; rates: Map<string, number>; wanted: string; chosen: string | null; anyLit: boolean; onChoose: (id: string) => void }

function Canvas(shown: Shown) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const worker = useRef<Worker | null>(null);
  const [placed, setPlaced] = useState<Placed | null>(null);
  const view = useRef({ x: 20, y: 20, scale: 1, fitted: "" });
  const turn = useRef(0);
  const key = shown.drawn.boxes.map((box) => box.id).join("|") + shown.drawn.edges.length;
  useEffect(() => {
    worker.current = new Worker("console/layout.js", { type: "module" });
    worker.current.onmessage = ({ data }: MessageEvent<Placed>) => { if (data.turn === turn.current) setPlaced(data); };
    return () => worker.current?.terminate();
  }, []);
  useEffect(() => {
    const asked: Asked = {
      turn: ++turn.current,
      nodes: shown.drawn.boxes.map((box) => ({ id: box.id, width: widthOf(box), height: HEIGHT })),
      edges: shown.drawn.edges,
    };
    worker.current?.postMessage(asked);
  }, [key]);
  const paint = () => {
    const element = canvas.current;
    if (!element || !placed) return;
    const { clientWidth: width, clientHeight: height } = element;
    const ratio = devicePixelRatio;
    if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
    }
    if (view.current.fitted !== key) fit(view.current, placed, width, height, key);
    draw(element, placed, shown, view.current, ratio);
  };
  const last = useRef(paint);
  last.current = paint;
  useEffect(() => { requestAnimationFrame(() => last.current()); });
  useEffect(() => {
    const sizes = new ResizeObserver(() => requestAnimationFrame(() => last.current()));
    if (canvas.current) sizes.observe(canvas.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const again = () => last.current();
    scheme.addEventListener("change", again);
    return () => { sizes.disconnect(); scheme.removeEventListener("change", again); };
  }, []);
  const moved = useRef<{ x: number; y: number; far: boolean } | null>(null);
  const zoom = (by: number, x: number, y: number) => {
    const now = view.current;
    const scale = Math.min(3, Math.max(0.05, now.scale * by));
    now.x = x - ((x - now.x) * scale) / now.scale;
    now.y = y - ((y - now.y) * scale) / now.scale;
    now.scale = scale;
    requestAnimationFrame(() => last.current());
  };
  return (
    <div class="plan-box">
      <canvas ref={canvas} class="plan-canvas" tabIndex={0} role="img" data-laid={placed ? String(Math.round(placed.ms)) : ""} data-placed={Object.keys(placed?.places ?? {}).length}
        aria-label={`The plan as a graph of ${shown.drawn.boxes.length} nodes; the list below has the same`}
        onWheel={(event) => { event.preventDefault(); zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.offsetX, event.offsetY); }}
        onPointerDown={(event) => { moved.current = { x: event.clientX, y: event.clientY, far: false }; event.currentTarget.setPointerCapture(event.pointerId); }}
        onPointerMove={(event) => {
          const from = moved.current;
          if (!from) return;
          const dx = event.clientX - from.x, dy = event.clientY - from.y;
          if (!from.far && Math.hypot(dx, dy) < 4) return;
          view.current.x += dx;
          view.current.y += dy;
          moved.current = { x: event.clientX, y: event.clientY, far: true };
          requestAnimationFrame(() => last.current());
        }}
        onPointerUp={(event) => {
          const far = moved.current?.far;
          moved.current = null;
          if (far || !placed) return;
          const x = (event.offsetX - view.current.x) / view.current.scale, y = (event.offsetY - view.current.y) / view.current.scale;
          const hit = shown.drawn.boxes.find((box) => {
            const at = placed.places[box.id];
            return at && Math.abs(at[0] - x) <= widthOf(box) / 2 && Math.abs(at[1] - y) <= HEIGHT / 2;
          });
          if (hit) shown.onChoose(hit.id);
        }}
        onKeyDown={(event) => {
          const steps: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
          const step = steps[event.key];
          if (step) { view.current.x += step[0]; view.current.y += step[1]; }
          else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.2 : 1 / 1.2, 200, 150);
          else if (event.key === "0") view.current.fitted = "";
          else return;
          event.preventDefault();
          requestAnimationFrame(() => last.current());
        }} />
      <div class="plan-tools">
        <button type="button" class="small" aria-label="Larger" onClick={() => zoom(1.25, canvas.current!.clientWidth / 2, 200)}>+</button>
        <button type="button" class="small" aria-label="Smaller" onClick={() => zoom(0.8, canvas.current!.clientWidth / 2, 200)}>−</button>
        <button type="button" class="small" onClick={() => { view.current.fitted = ""; last.current(); }}>All</button>
      </div>
    </div>
  );
}

function fit(view: { x: number; y: number; scale: number; fitted: string }, placed: Placed, width: number, height: number, key: string): void {
  const all = Object.values(placed.places);
  const right = Math.max(...all.map(([x]) => x)) + MOST / 2, low = Math.max(...all.map(([, y]) => y)) + HEIGHT;
  view.scale = Math.min(1.1, Math.max(0.05, Math.min(width / (right + 20), height / (low + 20))));
  view.x = Math.max(10, (width - right * view.scale) / 2);
  view.y = Math.max(10, (height - low * view.scale) / 2);
  view.fitted = key;
}

function draw(element: HTMLCanvasElement, placed: Placed, shown: Shown, view: { x: number; y: number; scale: number }, ratio: number): void {
  const pen = element.getContext("2d")!;
  const css = getComputedStyle(element);
  const [ink, line, ground] = [css.color, css.borderTopColor, css.backgroundColor];
  const { width, height } = element;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.setTransform(view.scale * ratio, 0, 0, view.scale * ratio, view.x * ratio, view.y * ratio);
  const inside = (x: number, y: number) => {
    const px = x * view.scale + view.x, py = y * view.scale + view.y;
    return px > -300 && py > -100 && px < width / ratio + 300 && py < height / ratio + 100;
  };
  const byId = new Map(shown.drawn.boxes.map((box) => [box.id, box]));
  const readable = view.scale > 0.45;
  pen.font = "11px system-ui, sans-serif";
  for (const edge of shown.drawn.edges) {
    const from = placed.places[edge.source], to = placed.places[edge.target];
    const source = byId.get(edge.source), target = byId.get(edge.target);
    if (!from || !to || !source || !target || (!inside(...from) && !inside(...to))) continue;
    const x1 = from[0] + widthOf(source) / 2, x2 = to[0] - widthOf(target) / 2, bend = Math.max(30, (x2 - x1) / 2);
    const rate = shown.rates.get(`${edge.source} ${edge.target}`) ?? 0;
    const faint = shown.anyLit && !(source.lit && target.lit);
    pen.globalAlpha = faint ? 0.25 : 1;
    pen.strokeStyle = rate > 0 ? "#1591ad" : line;
    pen.lineWidth = rate > 0 ? Math.min(7, 1.5 + Math.log10(1 + rate)) : 1.5;
    pen.beginPath();
    pen.moveTo(x1, from[1]);
    pen.bezierCurveTo(x1 + bend, from[1], x2 - bend, to[1], x2, to[1]);
    pen.stroke();
    if (readable && rate > 0) {
      pen.fillStyle = ink;
      pen.textAlign = "center";
      pen.fillText(`${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))}/s`, (x1 + x2) / 2, (from[1] + to[1]) / 2 - 6);
    }
  }
  for (const box of shown.drawn.boxes) {
    const at = placed.places[box.id];
    if (!at || !inside(...at)) continue;
    const wide = widthOf(box), x = at[0] - wide / 2, y = at[1] - HEIGHT / 2;
    pen.globalAlpha = shown.anyLit && !box.lit ? 0.35 : 1;
    pen.fillStyle = ground;
    pen.strokeStyle = SHADES[box.kind] ?? ink;
    const found = matches(box, shown.wanted);
    pen.lineWidth = box.id === shown.chosen || found ? 3.5 : 1.5;
    pen.beginPath();
    pen.roundRect(x, y, wide, HEIGHT, 7);
    pen.fill();
    pen.stroke();
    pen.fillStyle = SHADES[box.kind] ?? ink;
    pen.fillRect(x, y + 6, 4, HEIGHT - 12);
    if (!readable) continue;
    pen.textAlign = "left";
    pen.fillStyle = ink;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(cut(box.label, wide), x + 12, y + 18);
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(second(box), x + 12, y + 34, wide - 16);
  }
  pen.globalAlpha = 1;
}

const cut = (text: string, wide: number) => (text.length * CHAR > wide - 16 ? `${text.slice(0, Math.floor((wide - 24) / CHAR))}…` : text);

/** The figure that says most of a node. */
function second(box: Box): string {
  if (box.figures.queries === 1) return "1 query";
  const first = Object.entries(box.figures).find(([, value]) => typeof value === "number");
  return first ? `${Number((first[1] as number).toPrecision(4)).toLocaleString("en")} ${first[0]}` : box.kind;
}
