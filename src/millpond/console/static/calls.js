// Calls of the API, with the token of this tab and errors as the server words them.

const KEY = "millpond-token";

export class Problem extends Error {
  constructor(error, results = []) {
    super(error.message);
    this.error = error;
    this.results = results;
  }
}

// Integers beyond 2^53 are kept as they were written; where a browser cannot, they are rounded.
function exact(key, value, context) {
  const whole = typeof value === "number" && Number.isInteger(value);
  return whole && !Number.isSafeInteger(value) && context ? context.source : value;
}

export async function call(method, path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(`.${path}`, { method, headers, body: body && JSON.stringify(body) });
    text = await response.text();
  } catch {
    throw new Problem({ code: "SERVE-705", message: "the server cannot be reached" });
  }
  if (response.status === 401) {
    await askForToken();
    return call(method, path, body);
  }
  let answer;
  try {
    answer = text ? JSON.parse(text, exact) : null;
  } catch {
    throw new Problem({ code: "SERVE-705", message: `the server answered ${response.status}` });
  }
  if (!response.ok) throw new Problem(answer.error, answer.results);
  return answer;
}

export const get = (path) => call("GET", path);

let asking = null;

function askForToken() {
  // Calls under way at the same time are refused together: one question is enough.
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("token-dialog");
    const input = document.getElementById("token");
    input.value = "";
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, input.value.trim());
      asking = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
