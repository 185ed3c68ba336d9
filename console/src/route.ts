// What is shown is a URL: #/page/name?key=value. The part behind # is never sent to the server.
import { signal } from "@preact/signals";

export interface Route {
  page: string;
  name: string;
  params: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page = "", name = ""] = path.split("/");
  return { page: page || "write", name: decode(name), params: new URLSearchParams(query) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal(read());
addEventListener("hashchange", () => { route.value = read(); });

export type Params = Record<string, string | number | boolean | null | undefined>;

/** The link to a page; parameters that are empty are left out. */
export function link(page: string, name = "", params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) {
      query.set(key, String(value));
    }
  }
  const tail = query.size ? `?${query}` : "";
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${tail}`;
}

/** Shows another page. */
export function go(page: string, name = "", params: Params = {}): void {
  location.hash = link(page, name, params);
}

/** Changes parameters of what is shown; `replace` makes no new entry of the browser's history. */
export function change(params: Params, replace = true): void {
  const { page, name, params: old } = route.value;
  const hash = link(page, name, { ...Object.fromEntries(old), ...params });
  if (replace) {
    history.replaceState(null, "", hash);
    route.value = read();
  } else {
    location.hash = hash;
  }
}
