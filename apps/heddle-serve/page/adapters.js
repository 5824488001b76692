// The adapters that there are, which of them answer, their colours, and what their folders say of them.
import { getJson } from "./api.js";
import { countText, find, make, setText } from "./dom.js";

export const kMostPicked = 64;  // of one request
const kPickedAtFirst = 8;
const kManyAdapters = 12;       // from here on there is a field to search them

/** The name that the base model has among adapters. */
export const kBase = null;

let names = [], base = "", picked = new Set();
const notes = new Map();  // of names: what /examples has of them
const listeners = [];

export const baseName = () => base;
export const shownName = (adapter) => adapter ?? base;
/** Those that answer, in the order of their chips. */
export const pickedAdapters = () => [...names, kBase].filter((name) => picked.has(name));
export const onChange = (call) => listeners.push(call);

/** A hue for each, far from those of its neighbours; the base model and what is unknown are grey. */
export function paint(element, adapter) {
  const place = names.indexOf(adapter);
  element.classList.toggle("hueless", place < 0);
  if (place >= 0) element.style.setProperty("--hue", Math.round((262 + place * 137.508) % 360));
  return element;
}

export const noteOf = (adapter) => notes.get(adapter) ?? { about: "", prompts: [] };

function tell() {
  for (const call of listeners) call();
}

async function readNotes() {
  const missing = pickedAdapters().filter((name) => name !== kBase && !notes.has(name));
  for (const name of missing) notes.set(name, { about: "", prompts: [] });
  await Promise.all(missing.map(async (name) => {
    try {
      notes.set(name, await getJson(`/examples/${encodeURIComponent(name)}`));
    } catch {
      notes.delete(name);  // asked for again when it is picked again
    }
  }));
  if (missing.length > 0) tell();
}

function show() {
  const count = picked.size;
  setText(find("picked-count"), count === 0 ? "no adapter picked" : `${countText(count, "answer")} at once`);
  for (const chip of find("picker").children) chip.setAttribute("aria-pressed", picked.has(chip.adapter));
  tell();
  readNotes();
}

export function pick(chosen) {
  picked = new Set([...chosen].slice(0, kMostPicked));
  show();
}

function toggle(adapter) {
  const next = new Set(picked);
  if (!next.delete(adapter)) next.add(adapter);
  pick(next);
}

function chip(adapter) {
  const made = make("button", {
    type: "button", class: "chip", text: adapter ?? "base model", onclick: () => toggle(adapter),
  });
  made.adapter = adapter;
  return paint(made, adapter);
}

function filter() {
  const wanted = find("filter").value.toLowerCase();
  for (const each of find("picker").children) each.hidden = !each.textContent.toLowerCase().includes(wanted);
}

/** Reads which adapters there are. Those that were picked stay so. */
export async function readAdapters() {
  const models = (await getJson("/v1/models")).data;
  const isFirst = base === "";
  const known = new Set(names);
  base = models.find((model) => model.parent === null)?.id ?? "base";
  names = models.filter((model) => model.parent !== null).map((model) => model.id);
  find("picker").replaceChildren(...[...names, kBase].map(chip));
  find("filter").hidden = names.length < kManyAdapters;
  filter();
  if (isFirst) return pick(names.length > 0 ? names.slice(0, kPickedAtFirst) : [kBase]);
  const added = names.filter((name) => !known.has(name) && picked.size < kPickedAtFirst);
  pick([...pickedAdapters(), ...added]);
}

export function startPicker() {
  find("pick-all").addEventListener("click", () => pick(names));
  find("pick-none").addEventListener("click", () => pick([]));
  find("filter").addEventListener("input", filter);
}
