// A table of any number of rows, of which only those are drawn that are seen.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Rows } from "../api";
import { cell, isNumber } from "../format";

const AROUND = 12;

export interface Virtual {
  total: number;
  height?: number;
  /** Draws a row as its cells. */
  row: (index: number) => ComponentChildren;
  rowClass?: (index: number) => string;
  head: ComponentChildren;
  /** Told which rows are seen. */
  onSeen?: (first: number, end: number) => void;
  label: string;
  columns: number;
}

export function VirtualTable({ total, height = 30, row, rowClass, head, onSeen, label, columns }: Virtual) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<[number, number]>([0, 40]);
  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / height) - AROUND);
    const end = Math.ceil((element.scrollTop + element.clientHeight) / height) + AROUND;
    if (first !== seen[0] || end !== seen[1]) setSeen([first, end]);
  };
  useLayoutEffect(look, [total]);
  useLayoutEffect(() => { onSeen?.(seen[0], Math.min(seen[1], total)); }, [seen, total]);
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(look);
    if (box.current) sizes.observe(box.current);
    return () => sizes.disconnect();
  });
  const first = Math.min(seen[0], total);
  const end = Math.min(seen[1], total);
  const drawn = [];
  for (let i = first; i < end; i += 1) {
    drawn.push(<tr key={i} class={rowClass?.(i)} style={{ height: `${height}px` }} aria-rowindex={i + 2}>{row(i)}</tr>);
  }
  const space = (rows: number) => rows > 0
    && <tr aria-hidden="true"><td class="space" colSpan={columns} style={{ height: `${rows * height}px` }} /></tr>;
  return (
    <div class="scroll" ref={box} onScroll={look} tabIndex={0} role="region" aria-label={label}>
      <table aria-rowcount={total + 1}>
        <thead><tr>{head}</tr></thead>
        <tbody>{space(first)}{drawn}{space(total - end)}</tbody>
      </table>
    </div>
  );
}

/** The rows of an answer. */
export function RowsTable({ rows, label = "rows" }: { rows: Rows; label?: string }) {
  const sides = rows.types.map((type) => (isNumber(type) ? "number" : ""));
  const head = rows.columns.map((name, i) => (
    <th class={sides[i]} scope="col">{name}<small>{rows.types[i]!.toLowerCase()}</small></th>
  ));
  const row = (index: number) => rows.rows[index]!.map((value, i) => {
    const text = cell(value, rows.types[i]);
    return <td class={`${value === null ? "null " : ""}${sides[i]}`} title={text.length > 40 ? text : undefined}>{text}</td>;
  });
  return <VirtualTable total={rows.rows.length} row={row} head={head} label={label} columns={rows.columns.length} />;
}
