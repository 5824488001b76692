"use strict";

// Text of models goes into textContent alone, never into markup.

const find = (id) => document.getElementById(id);
const sides = ["left", "right"];
const conversations = { left: [], right: [] };
const history = { speed: [], pages: [] };
const kPoints = 120;  // seconds that a plot shows
let abort = null;     // of the answers under way
let lastTokens = null;

function headers(key) {
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = `Bearer ${key}`;
  return all;
}

function showError(message) {
  find("error").textContent = message;
}

async function request(method, path, body, key = find("api-key").value) {
  const response = await fetch(path, { method, headers: headers(key), body: body && JSON.stringify(body) });
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // the text is all there is
  }
  throw new Error(message);
}

function option(value, text) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = text;
  return made;
}

function fillModels(models) {
  const names = models.map((model) => model.id);
  for (const side of sides) {
    const select = find(`${side}-model`);
    const chosen = select.value;
    const options = models.map(({ id, parent }) => option(id, parent === null ? `${id} (base)` : id));
    if (side === "right") options.unshift(option("", "nothing"));
    select.replaceChildren(...options);
    if (names.includes(chosen)) select.value = chosen;
  }
  find("model").textContent = names[0];
}

async function readModels() {
  fillModels((await (await request("GET", "/v1/models")).json()).data);
}

function paragraph(side, kind, text) {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  find(side).append(made);
  return made;
}

// The messages of a stream of server-sent events.
async function* messagesOf(response) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of response.body) {
    rest += decoder.decode(piece, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}

async function ask(side, prompt) {
  const model = find(`${side}-model`).value;
  if (!model) return;
  const conversation = conversations[side];
  conversation.push({ role: "user", content: prompt });
  paragraph(side, "user", prompt);
  const shown = paragraph(side, "answer", "");
  const body = {
    model, messages: conversation, stream: true,
    temperature: Number(find("temperature").value), max_tokens: Number(find("max-tokens").value),
  };
  let text = "", thoughts = "";  // of a model that thinks aloud; the conversation goes on without them
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(find("api-key").value), body: JSON.stringify(body), signal: abort.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const message of messagesOf(response)) {
      if (message.error) throw new Error(message.error.message);
      const delta = message.choices[0]?.delta ?? {};
      text += delta.content ?? "";
      thoughts += delta.reasoning ?? "";
      shown.textContent = thoughts + (thoughts && text ? "\n\n" : "") + text;
      find(side).scrollTop = find(side).scrollHeight;
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    shown.textContent += " (stopped)";
  } finally {
    conversation.push({ role: "assistant", content: text });
  }
}

async function send(event) {
  event.preventDefault();
  const prompt = find("prompt").value;
  if (!prompt || abort) return;
  showError("");
  abort = new AbortController();
  find("send").disabled = true;
  find("stop").disabled = false;
  find("prompt").value = "";
  try {
    await Promise.all(sides.map((side) => ask(side, prompt)));
  } catch (error) {
    showError(error.message);
  } finally {
    abort = null;
    find("send").disabled = false;
    find("stop").disabled = true;
    find("prompt").focus();
  }
}

function clear() {
  for (const side of sides) {
    conversations[side] = [];
    find(side).replaceChildren();
  }
}

async function changeAdapters(path, body, done) {
  showError("");
  find("load-result").textContent = "";
  try {
    await request("POST", path, body, find("admin-key").value);
    find("load-result").textContent = `${body.lora_name} was ${done}.`;
    await readModels();
  } catch (error) {
    showError(error.message);
  }
}

function plot(id, values, top) {
  const svg = find(id);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const points = values.map((value, i) => `${kPoints - values.length + i},${39 - (38 * value) / (top || 1)}`);
  line.setAttribute("points", points.join(" "));
  svg.replaceChildren(line);
}

function remember(list, value) {
  list.push(value);
  if (list.length > kPoints) list.shift();
}

function row(cells) {
  const made = document.createElement("tr");
  for (const cell of cells) {
    const place = document.createElement("td");
    place.textContent = cell;
    made.append(place);
  }
  return made;
}

function shareOf(part, whole) {
  return whole === 0 ? "none yet" : `${((100 * part) / whole).toFixed(1)} %`;
}

async function readState() {
  try {
    const state = await (await request("GET", "/state")).json();
    const speed = lastTokens === null ? 0 : Math.max(state.generated_tokens - lastTokens, 0);
    lastTokens = state.generated_tokens;
    const share = state.num_pages === 0 ? 0 : (state.num_pages - state.num_free_pages) / state.num_pages;
    find("running").textContent = state.num_running;
    find("waiting").textContent = state.num_waiting;
    find("pages").textContent = `${state.num_pages - state.num_free_pages} of ${state.num_pages}`;
    find("parked").textContent = state.num_parked;
    find("cached-pages").textContent = state.num_cached_pages;
    find("stored-pages").textContent = `${state.num_host_pages}, ${state.num_disk_pages}`;
    find("cached-share").textContent = shareOf(state.cached_tokens, state.prefix_tokens);
    find("speed").textContent = speed;
    remember(history.speed, speed);
    remember(history.pages, share);
    plot("speed-plot", history.speed, Math.max(...history.speed));
    plot("pages-plot", history.pages, 1);
    find("adapters").replaceChildren(...state.adapters.map((adapter) => row(
      [adapter.name, adapter.in_memory ? "yes" : "no", adapter.bytes.toLocaleString("en"), adapter.rows])));
    find("shares").hidden = state.tenants.length === 0;
    find("tenants").replaceChildren(...state.tenants.map((tenant) => row(
      [tenant.name, tenant.weight, tenant.waiting, tenant.running,
       tenant.prompt_tokens.toLocaleString("en"), tenant.answer_tokens.toLocaleString("en")])));
  } catch (error) {
    showError(`The server does not answer: ${error.message}`);
  }
}

find("chat-form").addEventListener("submit", send);
find("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) send(event);
});
find("stop").addEventListener("click", () => abort?.abort());
find("clear").addEventListener("click", clear);
find("load-form").addEventListener("submit", (event) => {
  event.preventDefault();
  changeAdapters("/v1/load_lora_adapter", { lora_name: find("lora-name").value, lora_path: find("lora-path").value }, "loaded");
});
find("unload").addEventListener("click", () => {
  changeAdapters("/v1/unload_lora_adapter", { lora_name: find("lora-name").value }, "unloaded");
});
find("api-key").addEventListener("change", () => readModels().catch((error) => showError(error.message)));
readModels().catch((error) => showError(error.message));
readState();
setInterval(readState, 1000);
