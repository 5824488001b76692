// The page: one prompt, which all picked adapters answer in one request, as one batch.
import { baseName, onChange, pick, pickedAdapters, readAdapters, startPicker } from "./adapters.js";
import { answersTo } from "./api.js";
import { Cards } from "./cards.js";
import { addTurn, bodyOf, keep, messagesOf, newConversation } from "./conversation.js";
import { copyText, countText, find, setText, showError } from "./dom.js";
import { settings, startDialogs, startLoading, startTheme } from "./settings.js";
import { asCurl, asPython } from "./snippets.js";
import { watch } from "./strip.js";

let conversation = newConversation();
let abort = null;          // of the answers that come
let hasFailedToRead = false;
const ends = new WeakMap();  // of answers: when they ended

const choices = () => ({ ...settings(), model: baseName() });

function snippet(kind, adapter) {
  const { system, temperature, maxTokens } = settings();
  const body = { model: adapter ?? baseName(), messages: messagesOf(conversation, adapter, system), temperature, max_tokens: maxTokens };
  return kind === "curl" ? asCurl(body) : asPython(body);
}

function useExample(text) {
  find("prompt").value = text;
  find("prompt").focus();
}

const cards = new Cards(find("cards"), { conversation: () => conversation, onExample: useExample, snippet });

function showState() {
  find("send").disabled = abort !== null;
  find("stop").disabled = abort === null;
  for (const name of ["copy-curl", "copy-python"]) find(name).disabled = conversation.turns.length === 0;
}

function take(turn, piece, begin) {
  const answer = turn.answers[piece.index];
  answer.text += piece.text;
  answer.thoughts += piece.thoughts;
  answer.tokens += piece.tokens;
  if (piece.finish) {
    answer.finish = piece.finish;
    answer.error = piece.error;
    ends.set(answer, performance.now());
    answer.seconds = (performance.now() - begin) / 1000;
    const left = turn.answers.filter((each) => each.finish === null).length;
    setText(find("status"), left > 0 ? `${countText(left, "answer")} to come` : `${countText(turn.answers.length, "answer")} complete`);
  }
  cards.redraw(answer);
}

/** The answers of the turn that are not whole end here. */
function endTurn(turn, finish) {
  for (const answer of turn.answers) {
    if (answer.finish !== null) continue;
    answer.finish = finish;
    cards.redraw(answer);
  }
}

async function send(event) {
  event?.preventDefault();
  const prompt = find("prompt").value;
  const adapters = pickedAdapters();
  if (abort || prompt.trim() === "") return;
  showError(adapters.length === 0 ? "Pick at least one adapter." : "");
  if (adapters.length === 0) return;
  abort = new AbortController();
  const own = conversation;
  const turn = addTurn(own, prompt, adapters);
  const begin = performance.now();
  cards.add(turn);
  find("prompt").value = "";
  setText(find("status"), `${countText(adapters.length, "answer")} to come`);
  showState();
  try {
    for await (const piece of answersTo(bodyOf(own, choices()), abort.signal)) take(turn, piece, begin);
    endTurn(turn, "stopped");  // where the server has ended the stream
  } catch (error) {
    const isStopped = error.name === "AbortError";
    endTurn(turn, "stopped");
    setText(find("status"), isStopped ? "Stopped" : "");
    if (!isStopped) showError(error.message);
  } finally {
    abort = null;
    keep(own);
    showState();
    find("prompt").focus();
  }
}

/** Tokens of an answer of this page that ended less than two seconds ago; 0: none did. */
function ownTokens(adapter) {
  const answer = conversation.turns.at(-1)?.answers.find((each) => (each.adapter ?? "") === adapter);
  return ends.get(answer) > performance.now() - 2000 ? answer.tokens : 0;
}

const stop = () => abort?.abort();

function open(chosen) {
  stop();
  conversation = chosen;
  showError("");
  setText(find("status"), "");
  const last = conversation.turns.at(-1);
  if (last) pick(last.answers.map((answer) => answer.adapter));
  cards.show(pickedAdapters(), true);
  showState();
}

async function copyRequest(kind, button) {
  const body = bodyOf(conversation, choices());
  await copyText(kind === "curl" ? asCurl(body) : asPython(body));
  setText(find("status"), `${button.textContent.replace("Copy as", "Copied as")}`);
}

/** Reads which adapters there are; where that fails, again when the state can be read. */
async function readAll() {
  try {
    await readAdapters();
    showError("");
    hasFailedToRead = false;
  } catch (error) {
    showFailure(error);
  }
}

function showFailure(error) {
  hasFailedToRead = true;
  showError(error.message);
}

function showServer(state) {
  setText(find("model"), baseName() && `${baseName()} on ${state.device}`);
  if (hasFailedToRead) readAll();
}

startTheme();
startPicker();
startDialogs(open);
startLoading(readAdapters);
onChange(() => cards.show(pickedAdapters()));
find("ask-form").addEventListener("submit", send);
find("stop").addEventListener("click", stop);
find("new").addEventListener("click", () => { open(newConversation()); find("prompt").focus(); });
find("api-key").addEventListener("change", readAll);
for (const kind of ["curl", "python"]) {
  find(`copy-${kind}`).addEventListener("click", (event) => copyRequest(kind, event.currentTarget));
}
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
  if (event.key === "Escape") stop();
});
showState();
readAll();
watch({ isBusy: () => abort !== null, ownTokens, onState: showServer, onFailure: showFailure });
