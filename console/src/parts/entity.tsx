// The settings of an entity, each set by pressing it.
import { useEffect, useState } from "preact/hooks";
import { type Entity, type ErrorFields, call } from "../api";
import { cell } from "../format";
import { fieldsOf, ProblemBox } from "./problem";

type Done = (entity: Entity) => void;

/** Buttons for the settings of an entity that is shown already. */
export function SettingButtons({ entity, done, failed }: { entity: Entity; done: Done; failed: (error: ErrorFields) => void }) {
  const set = async (name: string) => {
    const old = entity.settings[name];
    const text = prompt(`${name} of ${entity.id}:`, cell(old));
    if (text === null || text === cell(old)) return;
    const value = typeof old === "number" ? Number(text) : typeof old === "boolean" ? text === "true" : Array.isArray(old) ? JSON.parse(text) : text;
    try {
      done(await call("patch", "/v1/entities/{entity}", { path: { entity: entity.id }, body: { [name]: value } as never }));
    } catch (problem) {
      failed(fieldsOf(problem));
    }
  };
  return <>{Object.entries(entity.settings).map(([name, value]) => (
    <button type="button" class="small" onClick={() => void set(name)} title={`Set ${name}`}>{name} {cell(value)}</button>
  ))}</>;
}

/** The settings of the entity of an id, read when they are shown. */
export function Settings({ id }: { id: string }) {
  const [entity, setEntity] = useState<Entity | null>(null);
  const [error, setError] = useState<ErrorFields | null>(null);
  useEffect(() => {
    setEntity(null);
    setError(null);
    // What has no control table yet (an operator that has not run) has no settings either.
    call("get", "/v1/entities/{entity}", { path: { entity: id } }).then(setEntity, () => undefined);
  }, [id]);
  return (
    <>
      {error && <ProblemBox error={error} />}
      {entity && Object.keys(entity.settings).length > 0 && (
        <p class="pad" id="settings"><span class="soft">Settings, changed by pressing them: </span>
          <SettingButtons entity={entity} done={(now) => { setEntity(now); setError(null); }} failed={setError} /></p>
      )}
    </>
  );
}
