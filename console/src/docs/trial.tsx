// A call that is tried: its parameters and body are typed in, and the answer is shown as it comes.
import { useEffect, useRef, useState } from "preact/hooks";
import { address, token } from "../api";
import { type Document, type Named, type Parameter, example, typeOf } from "./document";
import { Words } from "./words";

/** How much of an answer is shown, in characters: a feed that is followed has no end. */
const MOST_SHOWN = 200_000;

interface Got { status: string; ok: boolean; headers: string; text: string; file: string; ends: boolean }

export function Trial({ document, named }: { document: Document; named: Named }) {
  const { call, method, path } = named;
  const media = Object.keys(call.requestBody?.content ?? {});
  const forms = Object.entries(call.responses).filter(([code]) => code < "300").flatMap(([, answer]) => Object.keys(answer.content ?? {}));
  // What comes in which form is chosen beside the button.
  const asked = (call.parameters ?? []).filter((one) => one.name !== "accept");
  const [values, setValues] = useState<Record<string, string>>({});
  const [type, setType] = useState(media[0] ?? "");
  const [accept, setAccept] = useState(forms[0] ?? "");
  const [body, setBody] = useState(() => sample(document, named, media[0] ?? ""));
  const [got, setGot] = useState<Got | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  useEffect(() => () => { if (got?.file) URL.revokeObjectURL(got.file); }, [got?.file]);

  const request = makeRequest(named, asked, values, type, accept, body);
  const send = async () => {
    running.current?.abort();
    const control = (running.current = new AbortController());
    const show = (shown: Got) => { if (running.current === control) setGot(shown); };
    try {
      await follow(request, control.signal, show);
    } catch (error) {
      if (control.signal.aborted) setGot((before) => before && { ...before, ends: true });
      else show({ status: "the server cannot be reached", ok: false, headers: "", text: String(error), file: "", ends: true });
    }
  };
  return (
    <form class="trial" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      {asked.map((parameter) => (
        <Field parameter={parameter} value={values[parameter.name] ?? ""} onChange={(value) => setValues({ ...values, [parameter.name]: value })} />
      ))}
      {media.length > 0 && (
        <div class="field">
          <label>Body as{" "}
            <select value={type} onChange={(event) => { setType(event.currentTarget.value); setBody(sample(document, named, event.currentTarget.value)); }}>
              {media.map((one) => <option>{one}</option>)}
            </select>
          </label>
          <textarea aria-label="Body" rows={Math.min(12, body.split("\n").length + 1)} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
        </div>
      )}
      <div class="tools">
        <button class="primary">Send {method.toUpperCase()}</button>
        {forms.length > 1 && (
          <label>Answer as{" "}
            <select value={accept} onChange={(event) => setAccept(event.currentTarget.value)}>{forms.map((one) => <option>{one}</option>)}</select>
          </label>
        )}
        {got && !got.ends && <button type="button" onClick={() => running.current?.abort()}>Stop</button>}
      </div>
      <pre class="command" aria-label="The same with curl" tabindex={0}>{curl(method, path, request)}</pre>
      {got && (
        <div role="status" aria-label="Answer">
          <p><strong class={got.ok ? "good" : "bad"}>{got.status}</strong>{!got.ends && <span class="soft"> … it goes on</span>}</p>
          {got.headers && <pre tabindex={0} aria-label="Headers of the answer">{got.headers}</pre>}
          {got.file && <p><a href={got.file} download="answer">Save the answer</a></p>}
          {got.text && <pre class="answered" tabindex={0} aria-label="Body of the answer">{got.text}</pre>}
        </div>
      )}
    </form>
  );
}

function Field({ parameter, value, onChange }: { parameter: Parameter; value: string; onChange: (value: string) => void }) {
  const { name, schema, required, description } = parameter;
  const choices = schema.enum ?? schema.anyOf?.find((one) => one.enum)?.enum ?? (schema.type === "boolean" ? [true, false] : null);
  const given = schema.default === undefined ? "" : String(schema.default);
  return (
    <div class="field">
      <label>
        <code>{name}</code> <span class="soft">{parameter.in}{required ? ", required" : ""} · {typeOf(schema)}</span>
        {choices ? (
          <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            <option value="">{given}</option>
            {choices.map((one) => <option>{String(one)}</option>)}
          </select>
        ) : (
          <input value={value} placeholder={given} required={required} autocomplete="off" onInput={(event) => onChange(event.currentTarget.value)} />
        )}
      </label>
      {(description ?? schema.description) && <Words text={(description ?? schema.description)!} />}
    </div>
  );
}

interface Request { method: string; url: string; headers: Record<string, string>; body?: string }

function makeRequest(named: Named, asked: Parameter[], values: Record<string, string>, type: string, accept: string, body: string): Request {
  const given = (place: string) => Object.fromEntries(asked.filter((one) => one.in === place && values[one.name]).map((one) => [one.name, values[one.name]!]));
  const headers = { ...given("header"), ...(accept && { Accept: accept }), ...(type && { "Content-Type": type }) };
  const places = Object.fromEntries(asked.filter((one) => one.in === "path").map((one) => [one.name, values[one.name] ?? ""]));
  return { method: named.method.toUpperCase(), url: address(named.path, places, given("query")), headers, body: type ? body : undefined };
}

/** Sends a request and shows what comes, while it comes. */
async function follow(request: Request, signal: AbortSignal, show: (got: Got) => void): Promise<void> {
  const headers: Record<string, string> = { ...request.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const begun = performance.now();
  const response = await fetch(request.url, { method: request.method, headers, body: request.body, signal });
  const ms = Math.round(performance.now() - begun);
  const got: Got = {
    status: `${response.status} ${response.statusText} in ${ms} ms`,
    ok: response.ok,
    headers: [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n"),
    text: "",
    file: "",
    ends: false,
  };
  const media = response.headers.get("content-type") ?? "";
  if (/arrow|parquet|octet/.test(media)) {
    const blob = await response.blob();
    return show({ ...got, text: `${blob.size} bytes`, file: URL.createObjectURL(blob), ends: true });
  }
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    got.text += decoder.decode(value, { stream: !done });
    if (got.text.length > MOST_SHOWN) {
      await reader?.cancel();
      return show({ ...got, text: `${got.text.slice(0, MOST_SHOWN)}\n… more is not shown`, ends: true });
    }
    if (done) return show({ ...got, text: media.includes("json") && !media.includes("nd") ? indent(got.text) : got.text, ends: true });
    show({ ...got });
  }
}

function indent(text: string): string {
  // A number beyond 2^53 would be shown as another one.
  if (/\d{16}/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function sample(document: Document, { call }: Named, type: string): string {
  const schema = call.requestBody?.content[type]?.schema;
  return type === "application/json" && schema ? JSON.stringify(example(document, schema), null, 2) : "";
}

/** The request as a command of a shell; the token is in its environment. */
function curl(method: string, path: string, request: Request): string {
  const url = new URL(request.url, location.href).href;
  const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const headers = Object.entries(request.headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`);
  if (token.get()) headers.unshift('-H "Authorization: Bearer $MILLPOND_TOKEN"');
  const made = method === "get" ? [] : [`-X ${request.method}`];
  const body = request.body === undefined ? [] : [`--data-binary ${quote(request.body)}`];
  const follows = path.endsWith("/changes") ? ["-N"] : [];
  return ["curl", ...follows, ...made, ...headers, ...body, quote(url)].join(" ");
}
