// The dialogs, the theme, and adapters that are loaded by hand.
import { request } from "./api.js";
import { find, make, setText, showError } from "./dom.js";
import { forget, forgetAll, keptConversations } from "./conversation.js";

const kThemes = { auto: "Auto", light: "Light", dark: "Dark" };
const kThemePlace = "heddle.theme";

function stored(place) {
  try {
    return localStorage.getItem(place);
  } catch {  // the browser keeps nothing
    return null;
  }
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(find("theme"), kThemes[theme]);
  find("theme").setAttribute("aria-label", `Theme: ${kThemes[theme]}`);
}

export function startTheme() {
  const names = Object.keys(kThemes);
  showTheme(names.includes(stored(kThemePlace)) ? stored(kThemePlace) : "auto");
  find("theme").addEventListener("click", () => {
    const theme = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    showTheme(theme);
    try {
      localStorage.setItem(kThemePlace, theme);
    } catch {
      // it holds until the page is left
    }
  });
}

export function settings() {
  return {
    temperature: Number(find("temperature").value), maxTokens: Number(find("max-tokens").value),
    system: find("system").value.trim(),
  };
}

function showConversations(onOpen) {
  const kept = keptConversations();
  find("forget-all").hidden = kept.length === 0;
  find("conversations").replaceChildren(...kept.map((conversation) => make("li", {},
    make("button", {
      type: "button", class: "text open", text: conversation.title || "without a title",
      onclick: () => { find("history").close(); onOpen(conversation); },
    }),
    make("time", { class: "hint", text: new Date(conversation.time).toLocaleString() }),
    make("button", {
      type: "button", class: "text", text: "Delete", "aria-label": `Delete ${conversation.title}`,
      onclick: () => { forget(conversation.id); showConversations(onOpen); },
    }))));
  if (kept.length === 0) find("conversations").append(make("li", { class: "hint", text: "There are none yet." }));
}

export function startDialogs(onOpen) {
  for (const name of ["history", "settings"]) {
    find(`open-${name}`).addEventListener("click", () => {
      if (name === "history") showConversations(onOpen);
      find(name).showModal();
    });
    find(name).querySelector(".close").addEventListener("click", () => find(name).close());
  }
  find("forget-all").addEventListener("click", () => { forgetAll(); showConversations(onOpen); });
}

export function startLoading(onChanged) {
  const change = async (path, body, done) => {
    showError("");
    setText(find("load-result"), "");
    try {
      await request("POST", path, { body, key: find("admin-key").value });
      setText(find("load-result"), `${body.lora_name} was ${done}.`);
      await onChanged();
    } catch (error) {
      setText(find("load-result"), error.message);
    }
  };
  find("load-form").addEventListener("submit", (event) => {
    event.preventDefault();
    change("/v1/load_lora_adapter", { lora_name: find("lora-name").value, lora_path: find("lora-path").value }, "loaded");
  });
  find("unload").addEventListener("click", () => {
    change("/v1/unload_lora_adapter", { lora_name: find("lora-name").value }, "unloaded");
  });
}
