// Places the nodes of a plan, in a worker: the page goes on meanwhile.
import { Graph, layout } from "@dagrejs/dagre";

export interface Asked {
  turn: number;
  nodes: { id: string; width: number; height: number }[];
  edges: { source: string; target: string }[];
}
export interface Placed {
  turn: number;
  places: Record<string, [number, number]>;
  ms: number;
}

onmessage = ({ data }: MessageEvent<Asked>) => {
  const begun = performance.now();
  const graph = new Graph();
  // Beyond some hundred nodes the ranking that gives the shortest edges takes too long.
  const ranker = data.nodes.length > 300 ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 70, ranker });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of data.nodes) graph.setNode(id, { width, height });
  for (const { source, target } of data.edges) graph.setEdge(source, target);
  layout(graph);
  const places: Placed["places"] = {};
  for (const { id } of data.nodes) {
    const { x, y } = graph.node(id) as { x: number; y: number };
    places[id] = [x, y];
  }
  postMessage({ turn: data.turn, places, ms: performance.now() - begun } satisfies Placed);
};
