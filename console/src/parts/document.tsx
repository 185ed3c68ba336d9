// The plan as a document: exported, edited, compared with what runs, adopted, taken back.
import { useEffect, useRef, useState } from "preact/hooks";
import { type AdoptedPlan, type ComparedPlan, type ErrorFields, call } from "../api";
import { makePlainEditor } from "../editor";
import { cell, count, moment } from "../format";
import { link } from "../route";
import { fieldsOf, ProblemBox } from "./problem";

const ODD: ErrorFields = { code: "JSON", message: "the document cannot be read", detail: null, hint: null, place: null };

/** `query`: whose plan is exported; empty: all. */
export function PlanDocument({ query, changed }: { query: string; changed: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const text = useRef("");
  const [exported, setExported] = useState<{ of: string; text: string } | null>(null);
  const [difference, setDifference] = useState<ComparedPlan | null>(null);
  const [past, setPast] = useState<AdoptedPlan[]>([]);
  const [error, setError] = useState<ErrorFields | null>(null);
  const [said, setSaid] = useState("");
  const attempt = async (act: () => Promise<void>) => {
    try {
      await act();
      setError(null);
    } catch (problem) {
      setError(problem instanceof SyntaxError ? { ...ODD, detail: problem.message } : fieldsOf(problem));
    }
  };
  const list = async () => setPast((await call("get", "/v1/plan/adopted")).plans);
  const take = () => attempt(async () => {
    const found = await call("get", "/v1/plan/document", { query: query ? { queries: [query] } : {} });
    setExported({ of: query, text: JSON.stringify(found, null, 2) });
    setDifference(null);
  });
  useEffect(() => { void attempt(list); }, []);
  useEffect(() => {
    if (!exported || !host.current) return undefined;
    text.current = exported.text;
    const view = makePlainEditor(host.current, exported.text, "The plan as a document", (now) => {
      text.current = now;
      setDifference(null);
    });
    return () => view.destroy();
  }, [exported]);
  const compare = () => attempt(async () => {
    setDifference(await call("post", "/v1/plan/compare", { body: JSON.parse(text.current) }));
    setSaid("");
  });
  const adopt = () => attempt(async () => {
    const { number } = await call("post", "/v1/plan/adopt", {
      query: { base: difference!.base }, body: JSON.parse(text.current), // what was shown, and nothing else
    });
    setSaid(`Plan ${number} is adopted. No answer is another one.`);
    setDifference(null);
    setExported(null);
    await list();
    changed();
  });
  const undo = (plan: number) => attempt(async () => {
    try {
      await call("post", "/v1/plan/undo", { query: { plan } });
    } finally {
      await list(); // somebody else may have adopted or taken back another
    }
    setSaid(`Plan ${plan} is taken back.`);
    setDifference(null);
    setExported(null);
    changed();
  });
  const save = () => {
    const address = URL.createObjectURL(new Blob([text.current], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href: address, download: "plan.json" }).click();
    URL.revokeObjectURL(address);
  };
  return (
    <section class="panel" aria-labelledby="document-title">
      <div class="tools">
        <h2 id="document-title">The plan as a document</h2>
        <button type="button" onClick={() => void take()}>{query ? `Export the plan of ${query}` : "Export"}</button>
        {exported && <button type="button" onClick={save}>Save</button>}
        {exported && <button type="button" onClick={() => void compare()}>Show the difference</button>}
        {difference && <button type="button" class="primary" onClick={() => void adopt()}>Adopt</button>}
        <span class="soft" role="status" id="document-said">{said}</span>
      </div>
      {!exported && <p class="soft pad">How the changes of followed queries are computed. Export it, edit a synopsis, an order of joining, what is
        shared, a strategy or the scheduler, look at the difference, and adopt it while the queries run.</p>}
      {error && <ProblemBox error={error} />}
      {exported && <div class="editor" id="document" ref={host} key={exported.text} />}
      {difference && <Difference difference={difference} />}
      {past.length > 0 && (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Adopted plans">
          <table>
            <thead><tr><th scope="col">adopted plan</th><th scope="col">at</th><th scope="col">by</th><th scope="col">what was changed</th><th scope="col">undo</th></tr></thead>
            <tbody>{past.map((one, place) => (
              <tr><td class="number">{one.number}</td><td>{moment(one.at).slice(0, 19)}</td><td>{one.by ?? ""}</td>
                <td>{one.changed.join(", ") || "all as it was, pinned"}</td>
                <td>{place === 0 && <button type="button" class="small" onClick={() => void undo(one.number)}>Take back</button>}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Difference({ difference }: { difference: ComparedPlan }) {
  const { settings, strategies, operators, plans, pinned } = difference;
  const lines: [string, unknown, unknown][] = [
    ...settings.map((one): [string, unknown, unknown] => [one.name, one.before, one.after]),
    ...strategies.map((one): [string, unknown, unknown] => [`strategy of ${one.query}`, one.before, one.after]),
    ...operators.map((one): [string, unknown, unknown] => [`${one.field} of ${one.id}`, one.before, one.after]),
  ];
  return (
    <div id="difference" class="pad">
      {lines.length === 0 && <p>Nothing is other. If you adopt it, all stays as it is, whatever statistics say later.</p>}
      {lines.length > 0 && (
        <table>
          <thead><tr><th scope="col">what</th><th scope="col">now</th><th scope="col">then</th></tr></thead>
          <tbody>{lines.map(([what, before, after]) => (
            <tr><td>{what}</td><td><span class="sign −">−</span> {cell(before)}</td><td><span class="sign">+</span> {cell(after)}</td></tr>
          ))}</tbody>
        </table>
      )}
      {plans.map((plan) => (
        <details>
          <summary><a href={link("query", plan.query)}>{plan.query}</a>: {plan.goes.length} operators go, {plan.comes.length} come, {plan.stays} stay; expected
            to take {share(plan.cost.before)} of a core now, {share(plan.cost.after)} then</summary>
          <pre class="plan">{plan.plan}</pre>
        </details>
      ))}
      <p class="soft">{count(pinned)} operators are pinned then.</p>
    </div>
  );
}

const share = (cost: number) => `${(100 * cost).toPrecision(2)} %`;
