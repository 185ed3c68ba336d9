// The tabs of the editor and the history of what was run, kept by the browser.
import { signal } from "@preact/signals";

export interface Tab { id: number; text: string }
const TABS = "millpond-tabs", HISTORY = "millpond-history", MOST = 200;

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
