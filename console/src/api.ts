// Calls of the public HTTP API, typed by its OpenAPI document, with the token of this tab.
import { signal } from "@preact/signals";
import type { components, paths } from "./contract";
import { forgetTexts } from "./tabs";

type Schemas = components["schemas"];
export type AdoptedPlan = Schemas["AdoptedPlan"];
export type ComparedPlan = Schemas["ComparedPlan"];
export type Trace = Schemas["Trace"];
export type History = Schemas["History"];
export type QueryCosts = Schemas["QueryCosts"];
export type QueryCost = Schemas["QueryCost"];
export type Answer = Schemas["Answer"];
export type CallerFacts = Schemas["CallerFacts"];
export type Entity = Schemas["Entity"];
export type ErrorFields = Schemas["ErrorFields"];
export type ListedQuery = Schemas["ListedQuery"];
export type PlanGraph = Schemas["PlanGraph"];
export type PlanNode = Schemas["PlanNode"];
export type Query = Schemas["Query"];
export type QueryPage = Schemas["QueryPage"];
export type Relation = Schemas["Relation"];
export type Signature = Schemas["Signature"];
export type Status = Schemas["Status"];
export type Stream = Schemas["Stream"];
export type Result = Schemas["Results"]["results"][number];
export type Rows = Pick<Answer, "columns" | "types" | "rows">;

const KEY = "millpond-token";

/** An error as the server words it; `results` are those of the statements before it. */
export class Problem extends Error {
  constructor(readonly error: ErrorFields, readonly status: number, readonly results: Result[] = []) {
    super(error.message);
  }
}

export const UNREACHABLE: ErrorFields = {
  code: "SERVE-705",
  message: "the server cannot be reached",
  detail: null,
  hint: "The console goes on by itself as soon as the server answers.",
  place: null,
};

/** Whether the server answered the last call; null until the first. */
export const online = signal<boolean | null>(null);
/** What the dialog for the token says; null while no token is asked for. */
export const asking = signal<string | null>(null);
let answered: (() => void)[] = [];

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set(text: string) {
    sessionStorage.setItem(KEY, text);
    asking.value = null;
    const waiting = answered;
    answered = [];
    for (const go of waiting) go();
  },
  /** Signs out: what the token's owner wrote here is not shown to the next one. */
  forget() {
    sessionStorage.removeItem(KEY);
    forgetTexts();
    history.replaceState(null, "", "#/write");
    location.reload();
  },
};

type Method = "get" | "post" | "patch" | "delete";
type Call<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer C> ? C : never;
type Answers<C> = C extends { responses: infer R }
  ? R extends { 200: { content: { "application/json": infer J } } } ? J
    : R extends { 201: { content: { "application/json": infer J } } } ? J : null
  : never;
type Json<C> = C extends { requestBody: { content: { "application/json": infer B } } } ? B : undefined;
type QueryOf<C> = C extends { parameters: { query?: infer Q } } ? Q : undefined;

export interface Sent<C> {
  path?: Record<string, string | number>;
  query?: QueryOf<C>;
  body?: Json<C>;
  signal?: AbortSignal;
}

/** Makes a call that the document has: its parameters, body and answer have the document's types. */
export async function call<M extends Method, P extends keyof paths>(
  method: M, path: P, sent: Sent<Call<P, M>> = {},
): Promise<Answers<Call<P, M>>> {
  const response = await send(method, address(path, sent.path, sent.query as object), "application/json",
    sent.body, sent.signal);
  const text = await response.text();
  return (text ? parseExactly(text) : null) as Answers<Call<P, M>>;
}

/** The address of a call, relative to the page. */
export function address(path: string, places: Record<string, string | number> = {}, query?: object): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(places[name])));
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  }
  return `.${filled}${search.size ? `?${search}` : ""}`;
}

/** Sends a request, again after the token was asked for. Throws a Problem. */
export async function send(
  method: string, url: string, accept: string, body?: unknown, signal?: AbortSignal,
): Promise<Response> {
  for (;;) {
    const sentToken = token.get();
    const headers: Record<string, string> = { Accept: accept };
    if (sentToken) headers.Authorization = `Bearer ${sentToken}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response: Response;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(url, { method: method.toUpperCase(), headers, body: text, signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      online.value = false;
      throw new Problem(UNREACHABLE, 0);
    }
    online.value = true;
    if (response.status === 401) {
      await ask(sentToken);
      continue;
    }
    if (!response.ok) throw await problem(response);
    return response;
  }
}

/** Asks for a token; calls that are refused together ask once. */
function ask(refused: string): Promise<void> {
  if (refused !== token.get()) return Promise.resolve(); // another call was told the token meanwhile
  asking.value = refused ? "The server does not know that token. It may have been taken back." : "";
  return new Promise((done) => answered.push(done));
}

async function problem(response: Response): Promise<Problem> {
  try {
    const body = await response.json();
    return new Problem(body.error, response.status, body.results);
  } catch {
    const message = `the server answered ${response.status}`;
    return new Problem({ ...UNREACHABLE, message, hint: null }, response.status);
  }
}

/** An integer beyond 2^53 as it was written; written as a number again, also within lists. */
class Whole {
  constructor(private readonly source: string) {}
  toString = () => this.source;
  valueOf = () => Number(this.source);
  toJSON = () => {
    const { rawJSON } = JSON as { rawJSON?: (source: string) => unknown };
    return rawJSON ? rawJSON(this.source) : this.source;
  };
}

/** Parses JSON that the server sent; whole numbers stay exact where the browser tells how they were written. */
export const parseExactly = (text: string): unknown => JSON.parse(text, exact as never);

function exact(_: string, value: unknown, context?: { source: string }): unknown {
  const beyond = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return beyond && context ? new Whole(context.source) : value;
}
