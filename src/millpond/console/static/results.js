// What was answered, below the CQL box.

import { get } from "./calls.js";
import { element, errorBox, footer, rowsTable } from "./drawing.js";

const WATCH_MS = 2000;
const place = document.getElementById("results");
let watching = 0;

export function showResults(results, error = null) {
  watching += 1;
  // The error first: what was answered before it may be longer than the screen.
  place.replaceChildren(...(error ? [errorBox(error)] : []), ...results.map(box));
}

function box(result) {
  if (result.rows) return element("div", { class: "result" }, rowsTable(result), footer(result));
  if (result.text !== undefined) {
    return element("div", { class: "result" }, element("pre", {}, result.text));
  }
  return element("p", { class: "message" }, result.message ?? result.statement);
}

export async function showQuery(query) {
  const turn = ++watching;
  const body = element("div");
  const watch = element("input", { type: "checkbox", onchange: () => watch.checked && again() });
  const title = element("h3", {}, query.name, element("span", { class: "spacer" }),
    element("label", {}, watch, " every 2 s"));
  place.replaceChildren(element("div", { class: "result" }, title, body));

  async function invoke() {
    try {
      const answer = await get(`/v1/queries/${query.id}/result`);
      if (turn === watching) body.replaceChildren(rowsTable(answer), footer(answer));
    } catch (problem) {
      if (!problem.error) throw problem;
      if (turn === watching) body.replaceChildren(errorBox(problem.error));
      watch.checked = false;
    }
  }

  async function again() {
    while (watch.checked && turn === watching) {
      if (!document.hidden) await invoke();
      await new Promise((done) => setTimeout(done, WATCH_MS));
    }
  }

  await invoke();
}

export async function showPlan(query) {
  const turn = ++watching;
  const shown = await get(`/v1/queries/${query.id}/plan`).then(
    (answer) => element("pre", {}, answer.plan),
    (problem) => errorBox(problem.error));
  if (turn !== watching) return;
  place.replaceChildren(element("div", { class: "result" }, element("h3", {}, query.name), shown));
}
