// The tabs of the editor and the history of what was run, kept by the browser.
import { signal } from "@preact/signals";

export interface Tab { id: number; text: string }
const TABS = "millpond-tabs", HISTORY = "millpond-history", OWNER = "millpond-owner", MOST = 200;

function kept<T>(key: string, otherwise: T): T {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "") as T;
  } catch {
    return otherwise;
  }
}

const begun = kept<Tab[]>(TABS, []).filter((tab) => typeof tab?.id === "number" && typeof tab.text === "string");
export const tabs = signal<Tab[]>(begun.length ? begun : [{ id: 1, text: "" }]);
export const current = signal<number>(tabs.value[0]!.id);
export const history = signal<string[]>(kept<string[]>(HISTORY, []).filter((text) => typeof text === "string"));

export const tab = () => tabs.value.find((one) => one.id === current.value) ?? tabs.value[0]!;

function keep(next: Tab[]): void {
  tabs.value = next;
  localStorage.setItem(TABS, JSON.stringify(next));
}

export function write(text: string): void {
  const { id } = tab();
  keep(tabs.value.map((one) => (one.id === id ? { ...one, text } : one)));
}

/** Shows a text: in the tab that has it, in the current one if that is empty, or in a new one. */
export function show(text: string): void {
  const found = tabs.value.find((one) => one.text === text);
  if (found) current.value = found.id;
  else if (tab().text.trim()) open(text);
  else write(text);
}

export function open(text = ""): void {
  const id = Math.max(...tabs.value.map((one) => one.id)) + 1;
  keep([...tabs.value, { id, text }]);
  current.value = id;
}

export function close(id: number): void {
  const left = tabs.value.filter((one) => one.id !== id);
  keep(left.length ? left : [{ id: 1, text: "" }]);
  if (!tabs.value.some((one) => one.id === current.value)) current.value = tabs.value.at(-1)!.id;
}

/** What a tab is called: the first words of its text. */
export const title = (text: string) => text.trim().replace(/\s+/g, " ").slice(0, 24) || "empty";

export function remember(text: string): void {
  history.value = [text, ...history.value.filter((one) => one !== text)].slice(0, MOST);
  localStorage.setItem(HISTORY, JSON.stringify(history.value));
}

export function forgetHistory(): void {
  history.value = [];
  localStorage.removeItem(HISTORY);
}

/** Forgets the texts, their history and whose they are, before somebody else signs in. */
export function forgetTexts(): void {
  for (const key of [TABS, HISTORY, OWNER]) localStorage.removeItem(key);
}

/** Says who has signed in; returns whether the texts were somebody else's, and are forgotten. */
export function belongTo(owner: string): boolean {
  const before = localStorage.getItem(OWNER);
  const others = before !== null && before !== owner;
  if (others) forgetTexts();
  localStorage.setItem(OWNER, owner);
  return others;
}
