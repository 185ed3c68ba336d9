// Schemas of the document, shown: each shape's fields are drawn once it is opened.
import { useState } from "preact/hooks";
import { type Document, type Schema, resolve, typeOf } from "./document";
import { Words } from "./words";

/** The shapes that a schema is made of, each to be opened. */
export function Shape({ document, schema }: { document: Document; schema: Schema }) {
  const every = parts(schema).map((part) => resolve(document, part)).filter(({ schema }) => schema.properties);
  const inner = every.filter((one, i) => every.findIndex((other) => other.schema === one.schema) === i);
  return (
    <div class="shape">
      <code>{typeOf(schema)}</code>
      {inner.map(({ name, schema: found }) => <Fields document={document} name={name || found.title || "fields"} schema={found} />)}
    </div>
  );
}

function Fields({ document, name, schema }: { document: Document; name: string; schema: Schema }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}</summary>
      {open && (
        <div class="fields">
          {schema.description && <Words text={schema.description} />}
          <dl>
            {Object.entries(schema.properties!).map(([field, of]) => (
              <div>
                <dt><code>{field}</code>{schema.required?.includes(field) ? "" : <span class="soft"> optional</span>}</dt>
                <dd>
                  <Shape document={document} schema={of} />
                  {of.description && <Words text={of.description} />}
                </dd>
              </div>
            ))}
          </dl>
        </div>
      )}
    </details>
  );
}

/** The schemas within a schema that may have fields. */
function parts(schema: Schema): Schema[] {
  const branches = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (branches) return branches.flatMap(parts);
  if (schema.items) return parts(schema.items);
  if (typeof schema.additionalProperties === "object") return parts(schema.additionalProperties);
  return [schema];
}
