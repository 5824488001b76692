// The strip: what the engine does now. A lane is a request, of any client of the server.
import { paint } from "./adapters.js";
import { getJson } from "./api.js";
import { bytesText, countText, find, make, setText } from "./dom.js";

const kPoints = 60;           // of the plot
const kBusyMs = 150, kIdleMs = 1000;
const kKeptMs = 20_000;       // that a lane stays when its request has ended
const kMostLanes = 24;

const lanes = new Map();      // of rows' ids, in the order in which they came
const speeds = [];
let last = null;              // { time, tokens } of the last state
let shownSpeed = 0, lastPoint = 0;

class Lane {
  constructor(row) {
    this.parts = ["cached", "prefill", "decode"].map((kind) => make("i", { class: kind }));
    this.count = make("span", { class: "count" });
    this.phase = make("span", { class: "phase" });
    this.element = paint(make("li", {}, make("span", { class: "name", text: row.adapter || "base model" }),
                              make("span", { class: "bar", "aria-hidden": "true" }, ...this.parts), this.phase, this.count), row.adapter);
    this.take(row);
  }

  take(row) {
    this.row = row;
    this.ended = 0;
    const phase = row.is_parked ? "parked" : row.phase;
    setText(this.phase, phase);
    this.element.dataset.phase = phase;
    setText(this.count, row.phase === "decode" ? `${row.prompt_tokens} + ${row.answer_tokens}` : `${row.computed_tokens} of ${row.prompt_tokens}`);
    this.element.setAttribute("aria-label", `${row.adapter || "base model"}: ${phase}, ${countText(row.prompt_tokens, "prompt token")}, ` +
      countText(row.answer_tokens, "answer token"));
  }

  /** `tokens`: of its answer, where the page knows them; else the last state has nearly all. */
  end(now, tokens) {
    if (this.ended) return;
    this.ended = now;
    this.row = { ...this.row, answer_tokens: Math.max(this.row.answer_tokens, tokens), computed_tokens: this.row.prompt_tokens };
    setText(this.phase, "done");
    this.element.dataset.phase = "done";
    setText(this.count, `${this.row.prompt_tokens} + ${this.row.answer_tokens}`);
  }

  /** `whole`: tokens that the width of a bar stands for. */
  draw(whole) {
    const { cached_tokens: cached, computed_tokens: computed, answer_tokens: answer } = this.row;
    const fromCache = Math.min(cached, computed);
    [fromCache, computed - fromCache, answer].forEach((tokens, i) => {
      this.parts[i].style.width = `${(100 * tokens) / whole}%`;
    });
  }
}

function showLanes(rows, now, ownTokens) {
  const present = new Set(rows.map((row) => row.id));
  const hasNew = rows.some((row) => !lanes.has(row.id));
  for (const [id, lane] of lanes) {
    if (!present.has(id)) lane.end(now, ownTokens(lane.row.adapter));
    const isOld = lane.ended && (now - lane.ended > kKeptMs || (hasNew && now - lane.ended > 1000));
    if (isOld) lanes.delete(id);
  }
  for (const row of rows) {
    const lane = lanes.get(row.id);
    if (lane) lane.take(row);
    else lanes.set(row.id, new Lane(row));
  }
  while (lanes.size > kMostLanes) lanes.delete([...lanes].find(([, lane]) => lane.ended)?.[0] ?? lanes.keys().next().value);
  const shown = [...lanes.values()];
  const whole = Math.max(32, ...shown.map(({ row }) => row.prompt_tokens + row.answer_tokens));
  for (const lane of shown) lane.draw(whole);
  const list = find("lanes");
  const elements = shown.map((lane) => lane.element);
  const isSame = elements.length === list.children.length && elements.every((element, i) => list.children[i] === element);
  if (elements.length === 0) {
    if (!list.querySelector(".idle")) list.replaceChildren(make("li", { class: "idle", text: "Nothing runs. Each request gets a lane here." }));
  } else if (!isSame) {
    list.replaceChildren(...elements);
  }
}

function plotSpeed(speed, now) {
  if (now - lastPoint < 900) return;
  lastPoint = now;
  speeds.push(speed);
  if (speeds.length > kPoints) speeds.shift();
  const top = Math.max(1, ...speeds);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", speeds.map((value, i) => `${kPoints - speeds.length + i},${19 - (18 * value) / top}`).join(" "));
  find("speed-plot").replaceChildren(line);
}

/** Tokens per second since the last state, smoothed over about a second. */
function takeSpeed(state, now) {
  if (last !== null && now > last.time) {
    const seconds = (now - last.time) / 1000;
    const speed = Math.max(state.generated_tokens - last.tokens, 0) / seconds;
    const weight = Math.min(1, seconds);
    shownSpeed += weight * (speed - shownSpeed);
    if (shownSpeed < 0.5) shownSpeed = 0;
  }
  last = { time: now, tokens: state.generated_tokens };
  setText(find("speed"), Math.round(shownSpeed).toLocaleString("en"));
  plotSpeed(shownSpeed, now);
}

const shareOf = (part, whole) => (whole === 0 ? "none yet" : `${((100 * part) / whole).toFixed(1)} %`);

function tableRow(cells) {
  return make("tr", {}, ...cells.map((text) => make("td", { text })));
}

function showDetails(state) {
  const used = state.num_pages - state.num_free_pages;
  setText(find("pages"), `${used} of ${state.num_pages}`);
  setText(find("cached-pages"), state.num_cached_pages);
  setText(find("stored-pages"), `${state.num_host_pages}, ${state.num_disk_pages}`);
  setText(find("parked"), state.num_parked);
  setText(find("weights"), bytesText(state.weight_bytes));
  setText(find("adapter-bytes"), bytesText(state.adapter_bytes));
  if (!find("details").open) return;
  find("adapters").replaceChildren(...state.adapters.map((adapter) => tableRow(
    [adapter.name, adapter.in_memory ? "yes" : "no", bytesText(adapter.bytes), adapter.rows])));
  find("shares").hidden = state.tenants.length === 0;
  find("tenants").replaceChildren(...state.tenants.map((tenant) => tableRow(
    [tenant.name, tenant.weight, tenant.waiting, tenant.running,
     tenant.prompt_tokens.toLocaleString("en"), tenant.answer_tokens.toLocaleString("en")])));
}

function show(state, ownTokens) {
  const now = performance.now();
  takeSpeed(state, now);
  const used = state.num_pages - state.num_free_pages;
  setText(find("running"), `${state.num_running} of ${state.max_batch}`);
  setText(find("waiting"), state.num_waiting);
  setText(find("memory"), `${bytesText((state.kv_bytes * used) / Math.max(state.num_pages, 1))} of ${bytesText(state.kv_bytes)}`);
  setText(find("cached-share"), shareOf(state.cached_tokens, state.prefix_tokens));
  showLanes(state.rows, now, ownTokens);
  showDetails(state);
}

/**
 * Reads the state again and again: often while something runs or `isBusy()`, else once a second.
 * ownTokens(adapter) are those of an answer that has just ended here, or 0; onState(state) and
 * onFailure(error) are called each time.
 */
export async function watch({ isBusy, ownTokens, onState, onFailure }) {
  for (;;) {
    let isActive = isBusy();
    try {
      const state = await getJson("/state");
      show(state, ownTokens);
      onState(state);
      isActive ||= state.num_running + state.num_waiting > 0;
    } catch (error) {
      onFailure(error);
    }
    const pause = isActive && !document.hidden ? kBusyMs : kIdleMs;
    await new Promise((resume) => setTimeout(resume, pause));
  }
}
