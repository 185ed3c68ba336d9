// Plan: the one shared plan as a graph, with what serves a query lit, or the paths of traced tuples.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ErrorFields, type PlanGraph, call } from "../api";
import { cell, count } from "../format";
import { PlanDocument } from "../parts/document";
import { Settings } from "../parts/entity";
import { type Box, Canvas, collapse, edgeKey } from "../parts/graph";
import { fieldsOf, ProblemBox } from "../parts/problem";
import { Traced, useTrace } from "../parts/traced";
import { change, link, route } from "../route";
import { pause } from "../session";

const EVERY_MS = 2000;

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
  const trace = useTrace(params.get("trace") ?? "", query, params.get("tuple"));
  const drawn = useMemo(() => {
    if (!graph) return null;
    const nodes = trace.passed ? graph.nodes.map((node) => ({ ...node, lit: trace.passed!.has(node.id) })) : graph.nodes;
    return collapse({ ...graph, nodes }, open, wanted);
  }, [graph, open, wanted, trace.passed]);
  const traced = useMemo(() => (drawn && trace.paths ? {
    tuples: trace.paths.length,
    along: new Map(drawn.edges.map((e) => [edgeKey(e), trace.paths!.filter((path) => path.has(e.source) && path.has(e.target)).length])),
  } : null), [drawn, trace.paths]);
  useEffect(() => {
    if (!drawn) return;
    const now = performance.now() / 1000;
    const elements = new Map(drawn.edges.flatMap((e) => (e.elements === null ? [] : [[edgeKey(e), e.elements] as const])));
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
          <Canvas drawn={drawn} rates={rates} traced={traced} wanted={wanted} chosen={chosen} anyLit={drawn.boxes.some((one) => one.lit)}
            onChoose={(id) => change({ node: id })} />
        )}
      </section>
      {params.get("trace") && <Traced {...trace} />}
      {box && <Chosen box={box} toggle={() => {
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

function Chosen({ box, toggle, isOpen }: { box: Box; toggle: () => void; isOpen: boolean }) {
  const entity = !/^(group|stream|queries):/.test(box.id);
  return (
    <section class="panel" aria-labelledby="chosen-title" id="chosen">
      <div class="tools">
        <h2 id="chosen-title">{box.kind}: {box.label}</h2>
        {(box.id.startsWith("group:") || isOpen) && <button type="button" onClick={toggle}>{isOpen ? "Close the group" : "Open the group"}</button>}
        {box.id.startsWith("stream:") && <button type="button" onClick={() => change({ trace: box.label, tuple: "" })}>Trace its last batch</button>}
        {entity && <a href={link("system", "", { entity: box.id })}>its control table</a>}
        <span class="soft">{WORDS[box.kind]}</span>
      </div>
      <dl class="facts">{Object.entries(box.figures).map(([key, value]) => <div><dt>{key}</dt><dd>{typeof value === "number" ? count(value) : cell(value)}</dd></div>)}</dl>
      {entity && <Settings id={box.id} />}
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
  queue: "where something waits: pushes for their epoch, or rows between operators (the most of the last step)",
  eddy: "decides for each element which SteMs of a join it probes, and in which order",
  join: "what a join has found, kept for all queries that share it",
  operator: "computes changes, once for all queries that have it",
  derivation: "operators that compute changes while somebody follows",
  relation: "rows that change by statements",
  queries: "standing queries that read the same",
};
