// What the page of calls reads of the OpenAPI document, and what it makes of schemas.

export interface Schema {
  $ref?: string;
  type?: string | string[];
  title?: string;
  description?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  examples?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  minimum?: number;
  maximum?: number;
}
export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  description?: string;
  schema: Schema;
}
type Content = Record<string, { schema?: Schema }>;
export interface Call {
  tags?: string[];
  description?: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Content };
  responses: Record<string, { description: string; content?: Content; headers?: Record<string, { description?: string }> }>;
  security?: Record<string, string[]>[];
}
export interface Document {
  info: { version: string; description?: string };
  paths: Record<string, Record<string, Call>>;
  components?: { schemas?: Record<string, Schema> };
}

/** A call with the method and the path that it is made by. */
export interface Named {
  id: string;
  method: string;
  path: string;
  call: Call;
}

/** All calls, by their tags, both in the order of the document. */
export function group(document: Document): Map<string, Named[]> {
  const groups = new Map<string, Named[]>();
  for (const [path, calls] of Object.entries(document.paths)) {
    for (const [method, call] of Object.entries(calls)) {
      const tag = call.tags?.[0] ?? "";
      const named = { id: `${method}${path.replace(/[{}]/g, "")}`, method, path, call };
      groups.set(tag, [...(groups.get(tag) ?? []), named]);
    }
  }
  return groups;
}

/** A schema's name and what it stands for: references are followed. */
export function resolve(document: Document, schema: Schema): { name: string; schema: Schema } {
  const name = schema.$ref?.split("/").at(-1) ?? "";
  return { name, schema: (name && document.components?.schemas?.[name]) || schema };
}

/** A schema in few words: `string`, `integer | null`, `list of Query`. */
export function typeOf(schema: Schema): string {
  const branches = schema.anyOf ?? schema.oneOf;
  if (schema.$ref) return schema.$ref.split("/").at(-1)!;
  if (branches) return branches.map(typeOf).join(" | ");
  if (schema.allOf?.length === 1) return typeOf(schema.allOf[0]!);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.type === "array") return schema.items && Object.keys(schema.items).length ? `list of ${typeOf(schema.items)}` : "list";
  if (schema.type === undefined) return "anything";
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type;
  return schema.format ? `${type} (${schema.format})` : type;
}

/** A value that fits a schema, with what is required alone; `depth` ends schemas that hold themselves. */
export function example(document: Document, given: Schema, depth = 0): unknown {
  const { schema } = resolve(document, given);
  const branch = (schema.anyOf ?? schema.oneOf ?? schema.allOf)?.[0];
  if (schema.examples?.length) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (branch) return example(document, branch, depth);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "array") return schema.items && depth < 3 ? [example(document, schema.items, depth + 1)] : [];
  if (type === "object" && depth < 4) {
    const wanted = schema.required ?? [];
    return Object.fromEntries(wanted.map((name) => [name, example(document, schema.properties?.[name] ?? {}, depth + 1)]));
  }
  return { string: "", integer: 0, number: 0, boolean: false, null: null, object: {} }[type ?? "object"] ?? {};
}
