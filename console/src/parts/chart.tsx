// An answer as a chart, whose form is chosen from the types of its columns.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Rows } from "../api";
import { cell, isNumber, isTime, seconds } from "../format";

export type Form = "line" | "bar" | "scatter";
const SHADES = ["#1591ad", "#e08a1e", "#7a5cc8", "#2e9e6b", "#c8446b", "#6b7f86"];

export interface Picture {
  form: Form;
  x: number;
  ys: number[];
}

/** How an answer is best drawn: over time as lines, over names as bars, else as points. */
export function choosePicture(rows: Rows, wanted: Form | "" = "", wantedX = ""): Picture | null {
  const numbers = rows.types.flatMap((type, i) => (isNumber(type) ? [i] : []));
  const named = rows.columns.indexOf(wantedX);
  const time = rows.types.findIndex(isTime);
  const name = rows.types.findIndex((type) => !isNumber(type) && !isTime(type));
  const x = named >= 0 ? named : time >= 0 ? time : name >= 0 ? name : (numbers[0] ?? -1);
  if (x < 0 || !rows.rows.length) return null;
  const others = numbers.filter((i) => i !== x);
  const ys = (others.length ? others : numbers).slice(0, SHADES.length);
  if (!ys.length) return null;
  const fit: Form = isTime(rows.types[x]!) ? "line" : isNumber(rows.types[x]!) ? "scatter" : "bar";
  return { form: wanted || fit, x, ys };
}

export function Chart({ rows, picture, label }: { rows: Rows; picture: Picture; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const { form, x, ys } = picture;
    const type = rows.types[x]!;
    const numeric = isTime(type) || isNumber(type);
    const place = (value: unknown) => (isTime(type) ? seconds(String(value)) : Number(value));
    const ordered = numeric
      ? rows.rows.filter((row) => row[x] !== null && drawable(place(row[x]))).sort((a, b) => place(a[x]) - place(b[x])) : rows.rows;
    const xs = ordered.map((row, i) => (numeric ? place(row[x]) : i));
    const data = [xs, ...ys.map((y) => ordered.map((row) => (row[y] === null || !drawable(Number(row[y])) ? null : Number(row[y]))))];
    const names = ordered.map((row) => cell(row[x], type));
    const beside = form === "bar" && !numeric && ys.length > 1;
    const plot = draw(element, (beside ? layBeside(data) : data) as uPlot.AlignedData, {
      form, time: isTime(type), names: numeric ? null : names, each: beside ? ys.length + 1 : 1,
      labels: [rows.columns[x]!, ...ys.map((y) => rows.columns[y]!)],
    });
    return () => plot.end();
  }, [rows, picture.form, picture.x, picture.ys.join()]);
  const left = countLeftOut(rows, picture);
  return (
    <>
      <div class="chart" ref={box} role="img" aria-label={label} />
      {left > 0 && <p class="soft pad">{left === 1 ? "1 value is left out" : `${left} values are left out`}: NaN, infinite, or too large to be drawn.</p>}
    </>
  );
}

/** Whether a value has a place on an axis. */
const drawable = (value: number) => Math.abs(value) < 1e30;

function countLeftOut(rows: Rows, { x, ys }: Picture): number {
  const read = [...new Set(isNumber(rows.types[x]!) ? [x, ...ys] : ys)];
  return rows.rows.flatMap((row) => read.filter((i) => row[i] !== null && !drawable(Number(row[i])))).length;
}

/** As much room as the longest label takes. */
function sizeAxis(plot: uPlot, labels: string[] | null, place: number, cycle: number): number {
  const axis = plot.axes[place] as uPlot.Axis & { _size: number };
  if (cycle > 1) return axis._size;
  const longest = Math.max(0, ...(labels ?? []).map((label) => String(label ?? "").length));
  return Math.max(64, 24 + 7.5 * longest);
}

interface Drawn {
  form: Form;
  time: boolean;
  names: string[] | null;
  labels: string[];
  height?: number;
  /** How many places of the axis a name takes. */
  each?: number;
}

/** Bars of several series beside each other: each name takes a place for each series, and a gap. */
function layBeside([xs, ...series]: (number | null)[][]): (number | null)[][] {
  const each = series.length + 1;
  const places = xs!.flatMap((_, i) => series.map((_series, k) => i * each + k));
  return [places, ...series.map((values, k) => places.map((at) => (at % each === k ? values[Math.floor(at / each)]! : null)))];
}

/** Draws series into an element; the chart follows the element's width. */
export function draw(element: HTMLElement, data: uPlot.AlignedData, drawn: Drawn) {
  const css = getComputedStyle(element);
  const ink = css.color; // a custom property would come as it is written: light-dark(…)
  const line = css.borderTopColor;
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const paths = drawn.form === "bar" ? uPlot.paths.bars!({ size: [0.85, 60] })
    : drawn.form === "scatter" ? () => null : uPlot.paths.linear!();
  const { names, each = 1 } = drawn;
  const middle = (each - 1) / 2 - (each > 1 ? 0.5 : 0);
  const nameAt = (at: number) => names?.[Math.floor(at / each)] ?? "";
  const beyond = names ? names.length * each - (each > 1 ? 1.4 : 0.4) : 0;
  const options: uPlot.Options = {
    width: Math.max(element.clientWidth, 120),
    height: drawn.height ?? 280,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
    scales: {
      x: { time: drawn.time, range: (plot, low, high) => (names ? [-0.6, beyond] : plot.data[0].length === 1 || low === high ? [low - 30, low + 30] : [low, high]) },
      y: { range: (_, low, high) => reach(low, high, drawn.form === "bar") },
    },
    axes: [
      { ...axis, ...(names ? {
        splits: () => steps(names.length, element.clientWidth).map((i) => i * each + middle),
        values: (_: uPlot, at: number[]) => at.map(nameAt),
      } : {}) },
      { ...axis, size: sizeAxis },
    ],
    series: [
      { label: drawn.labels[0]!, ...(names ? { value: (_: uPlot, i: number | null) => (i === null ? "" : nameAt(i)) } : {}) },
      ...drawn.labels.slice(1).map((label, i) => {
        const shade = SHADES[i % SHADES.length]!;
        const filled = drawn.form === "bar" ? `${shade}bb` : drawn.labels.length === 2 && drawn.form === "line" ? `${shade}22` : undefined;
        return {
          label, stroke: shade, width: 2, fill: filled, paths: paths as uPlot.Series.PathBuilder,
          points: { show: drawn.form === "scatter" || (drawn.form === "line" && data[0].length < 40), size: 6, fill: shade },
        };
      }),
    ],
  };
  const plot = new uPlot(options, data, element);
  const sizes = new ResizeObserver(() => {
    const width = Math.max(element.clientWidth, 120);
    if (width !== plot.width) plot.setSize({ width, height: options.height });
  });
  sizes.observe(element);
  return { plot, end: () => { sizes.disconnect(); plot.destroy(); } };
}

function reach(low: number, high: number, fromZero: boolean): [number, number] {
  if (low === null || high === null) return [0, 1];
  const [from, to] = fromZero ? [Math.min(0, low), Math.max(0, high)] : [low, high];
  const room = (to - from || Math.abs(to) || 1) * 0.06;
  return [fromZero && from === 0 ? 0 : from - room, to + room];
}

function steps(length: number, width: number): number[] {
  const every = Math.max(1, Math.ceil((length * 70) / Math.max(width, 1)));
  return Array.from({ length: Math.ceil(length / every) }, (_, i) => i * every);
}
