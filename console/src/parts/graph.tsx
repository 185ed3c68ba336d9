// The plan as a graph on a canvas of its own: what is one box, where a worker places it, how it is drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import type { PlanGraph, PlanNode } from "../api";
import { count } from "../format";
import type { Asked, Placed } from "../layout";

/** Groups of more nodes than this are one node until they are opened. */
const MOST_OPEN = 3;
const HEIGHT = 44, CHAR = 7.2, LEAST = 110, MOST = 250;

export interface Box extends PlanNode { members: PlanNode[] }
export interface Drawn { boxes: Box[]; edges: { source: string; target: string; elements: number | null }[] }

/** The graph with its large groups as one box each, unless opened or what is looked for. */
export function collapse(graph: PlanGraph, open: Set<string>, wanted: string): Drawn {
  const sizes = new Map<string, PlanNode[]>();
  for (const node of graph.nodes) {
    const members = sizes.get(node.group);
    if (members) members.push(node);
    else sizes.set(node.group, [node]);
  }
  const stands = new Map<string, string>();
  const boxes = new Map<string, Box>();
  const apart = (node: PlanNode) => open.has(node.group) || matches(node, wanted) || node.lit;
  // Of a group, what neither is looked for nor lit is one box, if that saves any.
  const hidden = new Map([...sizes].map(([group, members]) => [group, members.length > MOST_OPEN ? members.filter((one) => !apart(one)).length : 0]));
  for (const node of graph.nodes) {
    const id = hidden.get(node.group)! > 1 && !apart(node) ? `group:${node.group}` : node.id;
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

const SHADES: Record<string, string> = {
  stream: "#1591ad", module: "#e08a1e", synopsis: "#7a5cc8", join: "#c8446b", derivation: "#2e9e6b", relation: "#6b7f86", queries: "#3d6fd1",
  queue: "#8a7a55", eddy: "#e08a1e", operator: "#2e9e6b",
};
const TRACED = "#d9480f";

export const edgeKey = (edge: { source: string; target: string }) => `${edge.source} ${edge.target}`;

/** What went along an edge since ever, and how fast it goes now. */
function tellEdge(elements: number | null, rate: number): string {
  const speed = rate > 0 ? ` +${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))}/s` : "";
  return elements ? Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(elements) + speed : speed;
}

interface Shown {
  drawn: Drawn;
  rates: Map<string, number>;
  /** How many traced tuples went along an edge; null while none are traced. */
  traced: { along: Map<string, number>; tuples: number } | null;
  wanted: string;
  chosen: string | null;
  anyLit: boolean;
  onChoose: (id: string) => void;
}

export function Canvas(shown: Shown) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const worker = useRef<Worker | null>(null);
  const [placed, setPlaced] = useState<Placed | null>(null);
  const view = useRef({ x: 20, y: 20, scale: 1, fitted: "" });
  const turn = useRef(0);
  const placedOnce = useRef(false);
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
    if (view.current.fitted !== key) {
      // At first, what is shown on a narrow screen can be read; "All" shows all of it.
      const least = view.current.fitted === "" && placedOnce.current ? 0.05 : width < 700 ? 0.6 : 0.05;
      fit(view.current, placed, width, height, key, least);
      placedOnce.current = true;
    }
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

function fit(view: { x: number; y: number; scale: number; fitted: string }, placed: Placed, width: number, height: number, key: string, least: number): void {
  const all = Object.values(placed.places);
  const right = Math.max(...all.map(([x]) => x)) + MOST / 2, low = Math.max(...all.map(([, y]) => y)) + HEIGHT;
  view.scale = Math.min(1.1, Math.max(least, Math.min(width / (right + 20), height / (low + 20))));
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
    const key = edgeKey(edge);
    const rate = shown.rates.get(key) ?? 0, went = shown.traced?.along.get(key) ?? 0;
    pen.globalAlpha = (shown.traced ? went === 0 : shown.anyLit && !(source.lit && target.lit)) ? 0.25 : 1;
    pen.strokeStyle = went > 0 ? TRACED : rate > 0 ? SHADES.stream! : line;
    pen.lineWidth = went > 0 ? 4 : rate > 0 ? Math.min(7, 1.5 + Math.log10(1 + rate)) : 1.5;
    pen.beginPath();
    pen.moveTo(x1, from[1]);
    pen.bezierCurveTo(x1 + bend, from[1], x2 - bend, to[1], x2, to[1]);
    pen.stroke();
    const said = shown.traced ? (went > 0 ? `${went} of ${shown.traced.tuples}` : "") : tellEdge(edge.elements, rate);
    if (readable && said) {
      pen.fillStyle = ink;
      pen.textAlign = "center";
      pen.fillText(said, (x1 + x2) / 2, (from[1] + to[1]) / 2 - 6);
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
  const { queries, pattern, selectivity } = box.figures;
  if (box.kind === "queries" && queries === 1) return "1 query";
  if (box.kind === "operator" && pattern) return selectivity === undefined ? String(pattern) : `${pattern}, ${Math.round(100 * Number(selectivity))} % go on`;
  const first = Object.entries(box.figures).find(([, value]) => typeof value === "number");
  return first ? `${Number((first[1] as number).toPrecision(4)).toLocaleString("en")} ${first[0]}` : box.kind;
}
