// An error as the server words it.
import { type ErrorFields, Problem, UNREACHABLE } from "../api";

export function ProblemBox({ error }: { error: ErrorFields }) {
  return (
    <div class="error" role="alert">
      <div><strong>{error.code}</strong> {error.message}</div>
      {error.place?.snippet && <pre>{error.place.snippet}</pre>}
      {error.detail && <p>{error.detail}</p>}
      {error.hint && <p>Hint: {error.hint}</p>}
    </div>
  );
}

/** What went wrong, to be shown. Throws what is no error of the server. */
export function fieldsOf(error: unknown): ErrorFields {
  if (error instanceof Problem) return error.error;
  if (error instanceof DOMException && error.name === "AbortError") return UNREACHABLE;
  throw error;
}
