// What all pages ask: who calls, the state of the pond, what there are names of.
import { computed, signal } from "@preact/signals";
import { type CallerFacts, Problem, type Relation, type Signature, type Status, type Stream, call, online } from "./api";
import { belongTo } from "./tabs";

const EVERY_MS = 2000;
const KEPT = 150;

export const caller = signal<CallerFacts | null>(null);
export const status = signal<Status | null>(null);
export const streams = signal<Stream[]>([]);
export const relations = signal<Relation[]>([]);
export const keywords = signal<string[]>([]);
export const functions = signal<Signature[]>([]);

export const canWrite = computed(() => caller.value !== null && caller.value.role !== "reader");
export const isAdmin = computed(() => caller.value?.role === "admin");

/** Rows per second of each stream, with the seconds since 1970 at which each was measured. */
export const rates = signal<Map<string, { at: number[]; rate: number[] }>>(new Map());
const last = new Map<string, { rows: number; at: number }>();

/** Looks at the pond every two seconds while the page is seen; costs nothing while it is not. */
export async function watch(): Promise<void> {
  for (;;) {
    if (!document.hidden) {
      try {
        await look();
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
      }
    }
    await pause(online.value === false ? EVERY_MS / 2 : EVERY_MS);
  }
}

async function look(): Promise<void> {
  if (!caller.value) {
    const found = await call("get", "/v1/caller");
    if (belongTo(found.owner ?? "")) location.reload();
    caller.value = found;
  }
  const before = status.value;
  const found = await call("get", "/v1/status");
  status.value = found;
  measure(found);
  if (!keywords.value.length) {
    const language = await call("get", "/v1/language");
    keywords.value = language.keywords;
    functions.value = language.functions;
  }
  if (!before || names(before) !== names(found)) await readCatalog();
}

const names = (s: Status) => `${s.relations} ${s.streams.map((stream) => stream.name).join(" ")}`;

/** Reads the streams and relations anew. */
export async function readCatalog(): Promise<void> {
  streams.value = (await call("get", "/v1/streams")).streams;
  relations.value = (await call("get", "/v1/relations")).relations;
}

function measure(found: Status): void {
  const now = Date.now() / 1000;
  const measured = new Map(rates.value);
  for (const stream of found.streams) {
    const seen = last.get(stream.name);
    last.set(stream.name, { rows: stream.rows, at: now });
    if (!seen || stream.rows < seen.rows || now <= seen.at) continue;
    const { at, rate } = measured.get(stream.name) ?? { at: [], rate: [] };
    const current = (stream.rows - seen.rows) / (now - seen.at);
    measured.set(stream.name, { at: [...at, now].slice(-KEPT), rate: [...rate, current].slice(-KEPT) });
  }
  rates.value = measured;
}

export const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
