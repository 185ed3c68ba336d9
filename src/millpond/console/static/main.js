// The CQL box, and the start of everything else.

import { call } from "./calls.js";
import { element } from "./drawing.js";
import { listQueries } from "./queries.js";
import { showResults } from "./results.js";
import { watchStatus } from "./status.js";

const text = document.getElementById("text");
const shade = document.getElementById("shade");
const run = document.getElementById("run");
const KEY = "millpond-text";

async function runText() {
  const { selectionStart: from, selectionEnd: to } = text;
  const selected = from !== to;
  const sent = selected ? text.value.slice(from, to) : text.value;
  if (!sent.trim()) return;
  mark(null);
  run.disabled = true;
  try {
    const answer = await call("POST", "/v1/statements", { text: sent });
    showResults(answer.results);
  } catch (problem) {
    if (!problem.error) throw problem;
    showResults(problem.results ?? [], problem.error);
    mark(problem.error.place, selected ? from : 0);
  } finally {
    run.disabled = false;
    listQueries();
  }
}

function mark(place, offset = 0) {
  if (!place) {
    shade.replaceChildren();
    return;
  }
  // Places count characters, JavaScript counts UTF-16 units.
  const characters = [...text.value.slice(offset)];
  const units = (n) => offset + characters.slice(0, n).join("").length;
  const [from, to] = [units(place.start), Math.max(units(place.end), units(place.start) + 1)];
  const value = text.value;
  shade.replaceChildren(
    value.slice(0, from), element("mark", {}, value.slice(from, to) || " "), value.slice(to));
  shade.scrollTop = text.scrollTop;
}

text.value = sessionStorage.getItem(KEY) ?? "";
text.addEventListener("input", () => {
  mark(null);
  sessionStorage.setItem(KEY, text.value);
});
text.addEventListener("scroll", () => { shade.scrollTop = text.scrollTop; });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    runText();
  }
});
run.addEventListener("click", runText);

listQueries();
watchStatus(listQueries);
