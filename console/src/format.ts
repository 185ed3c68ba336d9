// How values are written for people.
export const count = (n: number) => Number(n).toLocaleString("en");

export const many = (n: number, one: string, more: string) => `${count(n)} ${n === 1 ? one : more}`;

export function moment(text: string | null | undefined): string {
  return text ? text.replace("T", " ").replace(/\.0+$/, "") : "none";
}

/** Bytes, with three digits. */
export function bytes(n: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const at = n < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3));
  return `${Number((n / 1000 ** at).toPrecision(3))} ${units[at]}`;
}

export function duration(seconds: number): string {
  const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"]];
  // Rounded; what would be 60 min is 1 h.
  const [size, unit] = units.find(([length], i) => seconds >= length - (units[i + 1]?.[0] ?? 1) / 2) ?? [1, "s"];
  return `${Math.round(seconds / size)} ${unit}`;
}

/** A length of time that may be short. */
export const spell = (seconds: number) => (seconds === 0 ? "0 s" : seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(4))} s`);

/** A part of a whole, in percent. */
export const share = (part: number, all: number) => (all ? `${((100 * part) / all).toFixed(1)} %` : "–");

export function perSecond(rate: number | undefined): string {
  if (rate === undefined) return "–";
  return rate > 0 && rate < 10 ? rate.toFixed(1) : count(Math.round(rate));
}

export const isNumber = (type: string) => /INT$|INTEGER|FLOAT|DOUBLE|DECIMAL|HUGEINT/.test(type) && !/\[/.test(type);
export const isTime = (type: string) => /^(TIMESTAMP|DATE)/.test(type) && !/\[/.test(type);

/** A list of decimals, which come as texts so that no digit is lost, as numbers. */
const bare = (value: unknown): string => (Array.isArray(value) ? `[${value.map(bare).join(",")}]` : String(value));

/** A value of a cell as text. */
export function cell(value: unknown, type = ""): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "object") return /DECIMAL.*\[\]$/.test(type) && Array.isArray(value) ? bare(value) : JSON.stringify(value);
  return isTime(type) ? moment(String(value)) : String(value);
}

/** The seconds since 1970 of an instant in UTC. */
export const seconds = (instant: string) => Date.parse(/Z$|[+-]\d\d:\d\d$/.test(instant) ? instant : `${instant}Z`) / 1000;
export const instant = (at: number) => new Date(at * 1000).toISOString().replace(/\.?0*Z$/, "");
