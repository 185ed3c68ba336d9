// Elements of the page. Text is only ever set as text: names and rows come from anywhere.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export const count = (n) => Number(n).toLocaleString("en");

export function moment(text) {
  return text ? text.replace("T", " ").replace(/\.0+$/, "") : "none";
}

export function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = units.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

export function perSecond(rate) {
  if (rate === null) return "–";
  return rate > 0 && rate < 10 ? rate.toFixed(1) : count(Math.round(rate));
}

const NUMBERS = /INT$|INTEGER|FLOAT|DOUBLE|DECIMAL|HUGEINT/;
const SHOWN = 500;

export function rowsTable({ columns, types, rows }) {
  const number = types.map((type) => NUMBERS.test(type));
  const side = (i) => (number[i] ? "number" : "");
  const head = element("tr", {}, ...columns.map((name, i) =>
    element("th", { class: side(i), scope: "col" }, name,
      element("small", {}, types[i].toLowerCase()))));
  const cell = (value, i) => {
    if (value === null) return element("td", { class: `null ${side(i)}` }, "null");
    let text = typeof value === "object" ? JSON.stringify(value) : String(value);
    if (types[i] === "TIMESTAMP") text = moment(text);
    return element("td", { class: side(i), title: text.length > 40 ? text : "" }, text);
  };
  const body = rows.slice(0, SHOWN).map((row) => element("tr", {}, ...row.map(cell)));
  const table = element("table", {},
    element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabIndex: 0 }, table);
}

export function footer(result) {
  const total = result.rows.length;
  const shown = total > SHOWN ? `, the first ${SHOWN} shown` : "";
  const parts = [`${count(total)} ${total === 1 ? "row" : "rows"}${shown}`];
  if (result.as_of) {
    parts.push(`as of ${moment(result.as_of)}`, result.final ? "final" : "not final yet");
  }
  const line = element("p", { class: "foot" }, parts.join(" · "));
  if (result.exact === false) {
    const lost = result.loss.map((loss) => loss.text).join("; ");
    line.append(element("span", { class: "note" }, ` · not exact: ${lost}`));
  }
  if (result.exact === false) {
    const share = result.part ? `about ${(100 * result.part.share).toPrecision(3)} % of it` : "";
    const says = [share, ...(result.estimated ?? [])].filter(Boolean).join(", ");
    line.append(element("span", { class: "note" }, ` · not exact: ${says}`));
  }
  return line;
}

export function errorBox(error) {
  return element("div", { class: "error", role: "alert" },
    element("div", {}, element("strong", {}, error.code), ` ${error.message}`),
    error.place?.snippet ? element("pre", {}, error.place.snippet) : null,
    error.detail ? element("p", {}, error.detail) : null,
    error.hint ? element("p", {}, `Hint: ${error.hint}`) : null);
}

export function sparkline(values) {
  const space = "http://www.w3.org/2000/svg";
  const [width, height] = [100, 30];
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("class", "spark");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, i) => {
    const x = (i / Math.max(values.length - 1, 1)) * width;
    return `${x.toFixed(1)},${(height - 2 - (value / top) * (height - 5)).toFixed(1)}`;
  });
  const line = `M${points.join("L")}`;
  for (const [name, shape] of [["area", `${line}L${width},${height}L0,${height}Z`], ["", line]]) {
    const path = document.createElementNS(space, "path");
    if (name) path.setAttribute("class", name);
    path.setAttribute("d", shape);
    picture.append(path);
  }
  return picture;
}
