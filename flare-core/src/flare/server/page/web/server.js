// The server: requests, errors, streams. Addresses are relative, so that the page works behind any prefix.

import { events } from "./events.js";
import { load, save } from "./stored.js";

/** An error with the server's own message. `status` is 0 when there was no answer. */
export class ServerError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let key = load("key", "");
let guarded = key !== "";

export const apiKey = () => key;

/** Whether the server wanted a key, so far. */
export const wantsKey = () => guarded;

export function useKey(value) {
  key = value.trim();
  save("key", key);
}

/** A response whose status is a success. Raises ServerError, and AbortError when `signal` fires. */
export async function ask(path, { body, signal } = {}) {
  const headers = key && path.startsWith("v1/") ? { authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached.");
  }
  guarded ||= answer.status === 401;
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function refusal(answer) {
  try {
    const { error, reason } = await answer.json();
    return new ServerError(error?.message ?? reason, answer.status, error?.code ?? null);
  } catch {
    return new ServerError(`${answer.status} ${answer.statusText}`, answer.status);
  }
}

/** The model that is served: an entry of /v1/models. */
export async function servedModel() {
  return (await (await ask("v1/models")).json()).data[0];
}

/** The chunks of a streamed chat. Raises ServerError also for a stream that failed or broke off. */
export async function* chat(body, signal) {
  const answer = await ask("v1/chat/completions", { body: { ...body, stream: true }, signal });
  try {
    for await (const data of events(answer.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(chunk.error.message, answer.status, chunk.error.code);
      yield chunk;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ServerError) throw error;
  }
  throw new ServerError("The connection ended before the answer did.");
}
