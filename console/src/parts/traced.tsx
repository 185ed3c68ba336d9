// The tuples of a stream's newest batch: the queries each of them went to, and its path through the plan.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type ErrorFields, type Trace, call } from "../api";
import { cell, count, many } from "../format";
import { change, link } from "../route";
import { fieldsOf, ProblemBox } from "./problem";

interface Found {
  trace: Trace | null;
  error: ErrorFields | null;
  /** The place of the tuple whose path alone is lit; null: of all. */
  tuple: number | null;
  look: () => void;
  /** The nodes of each lit path, and of all of them; null while nothing is traced. */
  paths: Set<string>[] | null;
  passed: Set<string> | null;
}

/** Traces the newest batch of a stream, if one is named. */
export function useTrace(stream: string, query: string, place: string | null): Found {
  const [trace, setTrace] = useState<Trace | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  const look = () => {
    if (!stream) return;
    call("get", "/v1/plan/trace", { query: { stream, query: query || undefined } }).then(
      (found) => { setTrace(found); setError(null); }, (problem) => { setTrace(null); setError(fieldsOf(problem)); },
    );
  };
  useEffect(() => { setTrace(null); setError(null); look(); }, [stream, query]);
  const shown = stream ? trace : null;
  const tuple = place === null || !shown?.tuples[Number(place)] ? null : Number(place);
  return useMemo(() => {
    const some = tuple === null ? shown?.tuples : [shown!.tuples[tuple]!];
    const paths = some?.length ? some.map((one) => new Set(one.path)) : null;
    return { trace: shown, error, tuple, look, paths, passed: paths && new Set(paths.flatMap((path) => [...path])) };
  }, [shown, error, tuple]);
}

export function Traced({ trace, error, tuple, look }: Found) {
  const columns = Object.keys(trace?.tuples[0]?.values ?? {});
  return (
    <section class="panel" aria-labelledby="traced-title" id="traced">
      <div class="tools">
        <h2 id="traced-title">Traced tuples{trace && ` of ${trace.stream}`}</h2>
        <button type="button" onClick={look}>Trace the newest batch</button>
        {tuple !== null && <button type="button" onClick={() => change({ tuple: "" })}>Light all paths</button>}
        <button type="button" onClick={() => change({ trace: "", tuple: "" })}>Close</button>
        <span class="soft">{trace && `epoch ${count(trace.epoch ?? 0)}: ${many(trace.rows, "tuple", "tuples")}, the last ${trace.tuples.length} of them; ${many(trace.predicates, "predicate", "predicates")}`}</span>
      </div>
      {error && <ProblemBox error={error} />}
      {trace?.tuples.length === 0 && <p class="nothing">No tuples yet, or they are no longer kept.</p>}
      {trace && trace.tuples.length > 0 && (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Traced tuples">
          <table>
            <thead><tr><th scope="col">path</th>{columns.map((name) => <th scope="col">{name}</th>)}<th scope="col">went to</th></tr></thead>
            <tbody>{trace.tuples.map((one, place) => (
              <tr class={place === tuple ? "chosen" : ""}>
                <td><button type="button" class="small" aria-pressed={place === tuple} onClick={() => change({ tuple: place === tuple ? "" : place })}>{one.path.length} nodes</button></td>
                {columns.map((name) => <td>{cell(one.values[name])}</td>)}
                <td>{one.queries.map((name) => <><a href={link("query", name)}>{name}</a>{" "}</>)}
                  {one.matched > one.queries.length && `and ${count(one.matched - one.queries.length)} more`}
                  {one.matched === 0 && <span class="soft">no query</span>}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {tuple !== null && trace && <p class="pad" id="path"><span class="soft">Its path: </span>{trace.tuples[tuple]!.path.map((id) => <><button type="button" class="small" onClick={() => change({ node: id })}>{id}</button>{" "}</>)}</p>}
    </section>
  );
}
