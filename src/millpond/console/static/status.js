// The pond at a glance and its streams, looked at every two seconds while the page is seen.

import { get } from "./calls.js";
import { count, duration, element, errorBox, moment, perSecond, sparkline } from "./drawing.js";

const EVERY_MS = 2000;
const KEPT = 60;
const past = new Map();
const at = (id) => document.getElementById(id);

export async function watchStatus(onQueries) {
  let queries = null;
  for (;;) {
    if (!document.hidden) {
      try {
        const status = await get("/v1/status");
        show(status);
        if (queries !== null && queries !== status.queries) onQueries();
        queries = status.queries;
        state(status.ready ? "up" : "", status.ready ? "running" : "not ready");
      } catch (problem) {
        if (!problem.error) throw problem;
        state("down", problem.error.message);
      }
    }
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

function state(kind, text) {
  at("state").className = `state ${kind}`;
  at("state").textContent = text;
}

function show(status) {
  const now = performance.now() / 1000;
  const rates = status.streams.map((stream) => rate(stream, now));
  const known = rates.filter((r) => r !== null);
  at("count-queries").textContent = count(status.queries);
  at("count-streams").textContent = count(status.streams.length);
  at("count-rate").textContent = known.length
    ? perSecond(known.reduce((a, b) => a + b, 0)) : "–";
  at("count-epoch").textContent = count(status.epoch);
  at("count-uptime").textContent = duration(status.uptime_s);
  at("problems").hidden = !status.problems.length;
  at("problems").replaceChildren(...status.problems.map((p) => errorBox(p.error ?? p)));
  at("streams").replaceChildren(...(status.streams.length
    ? status.streams.map((stream, i) => card(stream, rates[i]))
    : [element("li", { class: "nothing" }, "No streams yet: CREATE STREAM makes one.")]));
}

function rate(stream, now) {
  const seen = past.get(stream.name);
  if (!seen || stream.rows < seen.rows) {
    past.set(stream.name, { rows: stream.rows, now, rates: [] });
    return null;
  }
  const current = (stream.rows - seen.rows) / Math.max(now - seen.now, 1e-3);
  past.set(stream.name, { rows: stream.rows, now, rates: [...seen.rates, current].slice(-KEPT) });
  return current;
}

function card(stream, current) {
  const fact = (name, value, kind = "") =>
    element("span", { class: kind }, `${name} `, element("b", {}, value));
  const { rates } = past.get(stream.name);
  return element("li", {},
    element("div", { class: "stream-head" },
      element("b", {}, stream.name),
      element("span", { class: `tag ${stream.state}` }, stream.state),
      element("span", { class: "rate" }, `${perSecond(current)} rows/s`)),
    rates.length > 1 ? sparkline(rates) : null,
    element("div", { class: "facts" },
      fact("rows", count(stream.rows)),
      fact("rejected", count(stream.rejected), stream.rejected ? "bad" : ""),
      fact("segments", count(stream.segments)),
      fact("heartbeat", moment(stream.heartbeat))),
    stream.reason ? element("p", { class: "reason" }, stream.reason) : null);
}
