// Requests to the server that serves the page.
import { find } from "./dom.js";

function headers(key) {
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = `Bearer ${key}`;
  return all;
}

export const apiKey = () => find("api-key").value;

async function errorOf(response) {
  const text = await response.text();
  const hint = response.status === 401 ? "; it is typed under Settings" : "";
  try {
    return new Error(JSON.parse(text).error.message + hint);
  } catch {
    return new Error(text || `the server answers with status ${response.status}`);
  }
}

export async function request(method, path, { body, key = apiKey(), signal } = {}) {
  let response;
  try {
    response = await fetch(path, { method, headers: headers(key), body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(`The server does not answer: ${error.message}`);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getJson(path) {
  return (await request("GET", path)).json();
}

/** The messages of a stream of server-sent events. */
export async function* messagesOf(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}

/** The pieces of the answers to a chat completion: { index, text, thoughts, tokens, finish, error }. */
export async function* answersTo(body, signal) {
  const response = await request("POST", "/v1/chat/completions", { body: { ...body, stream: true, return_token_ids: true }, signal });
  for await (const message of messagesOf(response)) {
    if (message.error) throw new Error(message.error.message);
    for (const choice of message.choices) {
      yield {
        index: choice.index, text: choice.delta?.content ?? "", thoughts: choice.delta?.reasoning ?? "",
        tokens: choice.token_ids?.length ?? 0, finish: choice.finish_reason ?? null, error: choice.error ?? null,
      };
    }
  }
}
