// Small helpers over the document. Text goes into nodes as text, never as markup.

export const find = (id) => document.getElementById(id);

/** An element: make("button", { class: "chip", text: "sql", onclick: pick }, child, ...). */
export function make(tag, settings = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Writes only what differs, so that what is selected or focused stays so. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function showError(message) {
  setText(find("error"), message);
}

const kUnits = ["B", "kB", "MB", "GB", "TB"];

/** 1234567 as "1.2 MB". */
export function bytesText(bytes) {
  let unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.length; ++unit) bytes /= 1000;
  return `${bytes < 10 && unit > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${kUnits[unit]}`;
}

/** countText(1, "adapter") is "1 adapter", countText(2, "adapter") "2 adapters". */
export function countText(count, what) {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}

export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = make("textarea", { class: "copied-text", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");  // the only way on a page that is served without TLS
  area.remove();
}
