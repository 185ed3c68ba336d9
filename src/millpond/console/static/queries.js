// The registered queries: found, invoked, explained.

import { get } from "./calls.js";
import { element } from "./drawing.js";
import { showPlan, showQuery } from "./results.js";

const PAGE = 50;
const list = document.getElementById("queries");
const more = document.getElementById("more");
const search = document.getElementById("search");
let latest = 0;
let next = null;

export async function listQueries(after = -1) {
  const turn = ++latest;
  const asked = new URLSearchParams({ limit: PAGE, after, containing: search.value.trim() });
  let page;
  try {
    page = await get(`/v1/queries?${asked}`);
  } catch (problem) {
    // Without a server the header says so.
    if (problem.error) return;
    throw problem;
  }
  // What was typed since has asked anew.
  if (turn !== latest) return;
  const items = page.queries.map(item);
  if (after < 0) {
    const nothing = search.value.trim()
      ? "No query has that in its name or text." : "No queries yet: CREATE QUERY makes one.";
    list.replaceChildren(...(items.length
      ? items : [element("li", { class: "nothing" }, nothing)]));
  } else {
    list.append(...items);
  }
  next = page.next;
  more.hidden = next === null;
}

function item(query) {
  const state = query.suspended ? "suspended" : query.active ? "active" : "inactive";
  const button = (label, act) =>
    element("button", { type: "button", class: "small", onclick: act }, label);
  return element("li", {},
    element("div", { class: "query-head" },
      element("b", {}, query.name),
      state === "active" ? null
        : element("span", { class: `tag ${state}`, title: query.suspended ?? "" }, state),
      button("Invoke", () => showQuery(query)),
      button("Plan", () => showPlan(query))),
    element("code", { title: query.cql }, query.cql));
}

let pause;
search.addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(listQueries, 200);
});
more.addEventListener("click", () => listQueries(next));
