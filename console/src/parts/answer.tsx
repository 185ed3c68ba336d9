// An answer: as table or chart, with what it promises, and ways to take it along.
import { useState } from "preact/hooks";
import { type Answer, type Rows, send } from "../api";
import { cell, many, moment } from "../format";
import { Chart, type Form, choosePicture } from "./chart";
import { fieldsOf, ProblemBox } from "./problem";
import { RowsTable } from "./rows";
import type { ErrorFields } from "../api";

export interface Taken {
  /** How the server gives the rows in another form. */
  fetch: (accept: string) => Promise<Response>;
  /** The same as commands. */
  curl: string;
  python: string;
}

interface Shown {
  rows: Rows;
  facts?: Partial<Answer>;
  name: string;
  view?: string;
  form?: string;
  onView?: (view: string, form: string) => void;
  taken?: Taken;
}

export function AnswerBox({ rows, facts, name, view, form, onView, taken }: Shown) {
  const [ownView, setOwnView] = useState(view ?? "table");
  const [ownForm, setOwnForm] = useState(form ?? "");
  const [error, setError] = useState<ErrorFields | null>(null);
  // With `onView` the page keeps both in its address, so that going back changes them too.
  const nowView = onView ? view ?? "table" : ownView, nowForm = onView ? form ?? "" : ownForm;
  const picture = choosePicture(rows, nowForm as Form | "");
  const show = (nextView: string, nextForm: string) => {
    setOwnView(nextView);
    setOwnForm(nextForm);
    onView?.(nextView, nextForm);
  };
  const drawn = nowView === "chart" && picture;
  const take = async (media: string, ending: string) => {
    try {
      setError(null);
      save(await (await taken!.fetch(media)).blob(), `${name}.${ending}`);
    } catch (problem) {
      setError(fieldsOf(problem));
    }
  };
  return (
    <div class="answer">
      <div class="tools">
        <div class="choice" role="group" aria-label="Shown as">
          <button type="button" aria-pressed={!drawn} onClick={() => show("table", nowForm)}>Table</button>
          <button type="button" aria-pressed={!!drawn} disabled={!picture} onClick={() => show("chart", nowForm)}
            title={picture ? undefined : "A chart needs rows and a column of numbers."}>Chart</button>
        </div>
        {drawn && (
          <select aria-label="Form of the chart" value={drawn.form}
            onChange={(event) => show("chart", event.currentTarget.value)}>
            <option value="line">line</option><option value="bar">bar</option><option value="scatter">scatter</option>
          </select>
        )}
        <span class="fill" />
        <details class="menu">
          <summary>Take along</summary>
          <div>
            <button type="button" onClick={() => save(new Blob([csv(rows)], { type: "text/csv" }), `${name}.csv`)}>CSV</button>
            {taken && <button type="button" onClick={() => take("application/vnd.apache.parquet", "parquet")}>Parquet</button>}
            {taken && <button type="button" onClick={() => take("application/vnd.apache.arrow.stream", "arrows")}>Arrow</button>}
            {taken && <button type="button" onClick={() => copy(taken.curl)}>Copy as curl</button>}
            {taken && <button type="button" onClick={() => copy(taken.python)}>Copy as Python</button>}
          </div>
        </details>
      </div>
      {error && <ProblemBox error={error} />}
      {drawn ? <Chart rows={rows} picture={drawn} label={`Chart of ${name}`} /> : <RowsTable rows={rows} label={`Rows of ${name}`} />}
      <Foot rows={rows} facts={facts} />
    </div>
  );
}

/** What an answer is of, and what is missing in it. */
export function Foot({ rows, facts }: { rows: Rows; facts?: Partial<Answer> }) {
  const total = rows.rows.length;
  const parts = [many(total, "row", "rows")];
  if (facts?.as_of) parts.push(`as of ${moment(facts.as_of)}`, facts.final ? "final" : "not final yet");
  const lost = (facts?.loss ?? []).map((loss) => loss.text);
  if (facts?.part && !facts.part.whole) lost.push(`about ${(100 * facts.part.share).toPrecision(3)} % of it`);
  if (facts?.estimated?.length) lost.push(`estimated by ${facts.estimated.join(", ")}`);
  const bounds = Object.keys(facts?.bounds?.columns ?? {});
  return (
    <p class="foot">
      {parts.join(" · ")}
      {facts?.exact === true && <span class="good"> · exact</span>}
      {facts?.exact === false && <span class="note"> · not exact: {lost.join("; ") || "the engine says so"}</span>}
      {bounds.length > 0 && <span> · {Math.round(100 * facts!.bounds!.confidence)} % bounds for {bounds.join(", ")}</span>}
    </p>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    prompt("Copy this:", text); // no clipboard where the page came by plain HTTP from another machine
  }
}

function save(blob: Blob, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

/** Rows as CSV. A text that a spreadsheet would take for a formula is kept as it is: it is data. */
export function csv(rows: Rows): string {
  const quote = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const line = (values: unknown[], types: string[]) => values
    .map((value, i) => (value === null ? "" : quote(cell(value, types[i])))).join(",");
  return [rows.columns.map(quote).join(","), ...rows.rows.map((row) => line(row, rows.types))].join("\r\n") + "\r\n";
}

export const shell = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
export const base = () => location.origin + location.pathname.replace(/\/$/, "");

/** How the rows of a text are taken along. */
export function takeText(text: string): Taken {
  return {
    fetch: (accept) => send("post", "./v1/statements", accept, { text }),
    curl: `curl -s ${shell(`${base()}/v1/statements`)} -H "Authorization: Bearer $MILLPOND_TOKEN" `
      + `-H 'Content-Type: application/json' -d ${shell(JSON.stringify({ text }))}`,
    python: `import millpond\n\nwith millpond.connect(${JSON.stringify(base())}) as pond:\n`
      + `    for row in pond.ask(${JSON.stringify(text)}).rows():\n        print(row)\n`,
  };
}
