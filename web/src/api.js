// Requests to the server: with the API key, and repeated with growing pauses while the server is busy or unreachable.
// A site without a server answers them itself (site.js).

import { signal } from "@preact/signals";
import { answer as answerHere, isSite } from "./site.js";

const ATTEMPTS = 5;
const FIRST_PAUSE = 500; // milliseconds; doubled after each attempt
const TEMPORARY = [429, 502, 503, 504];
const KEY = "transduce-key";

export const key = signal(stored());
export const keyWanted = signal(""); // why a key must be entered; empty: none is needed
export const waiting = signal(""); // why the page waits before it tries again

export class RequestError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The response to a request; with a body it is a POST, of a form or of JSON. Throws RequestError with the server's reason. */
export async function ask(path, { body, signal } = {}) {
  for (let attempt = 1; ; attempt++) {
    const outcome = await send(path, body, signal);
    if (outcome instanceof Response) {
      waiting.value = "";
      return outcome;
    }
    if (outcome.status === 403) keyWanted.value = outcome.message;
    if (!(outcome.status === 0 || TEMPORARY.includes(outcome.status)) || attempt === ATTEMPTS) {
      waiting.value = "";
      throw outcome;
    }
    const pause = Math.max(FIRST_PAUSE * 2 ** (attempt - 1), 1000 * (outcome.retryAfter ?? 0));
    waiting.value = `${outcome.message}; trying again in ${Math.ceil(pause / 1000)} s`;
    await sleep(pause, signal);
  }
}

export const askJson = async (path, options) => (await ask(path, options)).json();

async function send(path, body, signal) {
  const isForm = body instanceof FormData;
  const headers = { ...(body && !isForm && { "content-type": "application/json" }), ...(key.peek() && { authorization: `Bearer ${key.peek()}` }) };
  let response;
  if (isSite)
    try {
      return await answerHere(path, body, signal, (progress) => (waiting.value = progress));
    } catch (failure) {
      if (signal?.aborted) throw failure;
      return new RequestError(failure.message, 400);
    }
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && !isForm ? JSON.stringify(body) : body, signal });
  } catch (failure) {
    if (signal?.aborted) throw failure;
    return new RequestError("the server does not respond", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const reason = answer.error ?? answer.detail;
  const error = new RequestError(typeof reason === "string" ? reason : `the server returned status ${response.status}`, response.status);
  error.retryAfter = Number(response.headers.get("retry-after")) || 0;
  return error;
}

export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      waiting.value = "";
      reject(signal.reason);
    });
  });
}

/** The data of server-sent events, each as {event, data}. */
export async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const complete = text.split("\n\n");
    text = complete.pop();
    for (const block of complete) {
      const [, event, data] = block.match(/^event: (.*)\ndata: (.*)$/s);
      yield { event, data: JSON.parse(data) };
    }
  }
}

export function useKey(value) {
  key.value = value;
  keyWanted.value = "";
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // without storage, the key is kept until the page is closed
  }
}

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
