// A card for each adapter: what it is, prompts to try it with, and its side of the conversation.
import { kBase, noteOf, paint, shownName } from "./adapters.js";
import { turnsOf } from "./conversation.js";
import { copyText, countText, make, setText } from "./dom.js";
import { markdownNodes } from "./markdown.js";

const kExamples = 3;
const kEnds = { length: "cut off at its most tokens", stopped: "stopped" };
const kOften = 20_000;  // characters: longer texts are rendered less often while they grow

function thoughtsNode(text, isOpen) {
  return make("details", { class: "thoughts", open: isOpen },
              make("summary", { text: "Thoughts" }), make("p", { class: "verbatim", text }));
}

function footnote(answer) {
  const { finish, tokens, seconds } = answer;
  if (finish === null) return tokens > 0 ? countText(tokens, "token") : "reading the prompt";
  const parts = tokens > 0 ? [countText(tokens, "token")] : [];
  if (seconds !== undefined) parts.push(`${seconds.toFixed(1)} s`);
  if (kEnds[finish]) parts.push(kEnds[finish]);
  return parts.join(" \u00b7 ");
}

/** One turn in a card, drawn again as its answer grows. */
class Turn {
  constructor(prompt, answer) {
    this.answer = answer;
    this.body = make("div", { class: "answer" });
    this.foot = make("p", { class: "foot" });
    this.element = make("div", { class: "turn" }, make("p", { class: "user", text: prompt }), this.body, this.foot);
    this.draw();
  }

  draw() {
    const { text, thoughts, error, finish } = this.answer;
    const nodes = thoughts ? [thoughtsNode(thoughts, text === "")] : [];
    nodes.push(...markdownNodes(text));
    if (error) nodes.push(make("p", { class: "failed", text: error }));
    this.body.replaceChildren(...nodes);
    this.element.classList.toggle("growing", finish === null);
    setText(this.foot, footnote(this.answer));
  }
}

class Card {
  constructor(adapter, { conversation, onExample, snippet }) {
    this.adapter = adapter;
    this.turns = [];
    const id = `card-${adapter === kBase ? "base" : encodeURIComponent(adapter)}`;
    this.about = make("p", { class: "about" });
    this.log = make("div", { class: "log", role: "log", "aria-live": "off", "aria-labelledby": id, tabindex: 0 });
    this.tools = make("div", { class: "tools" }, ...["Copy", "curl", "Python"].map((kind) => make("button", {
      type: "button", class: "text", text: kind, "aria-label": `${kind} of ${shownName(adapter)}`,
      onclick: (event) => this.copy(kind, event.currentTarget),
    })));
    this.element = paint(make("article", { class: "card", "aria-labelledby": id },
                              make("header", {}, make("h2", { id, text: shownName(adapter) }), this.tools), this.about, this.log), adapter);
    this.onExample = onExample;
    this.snippet = snippet;
    for (const { prompt, answer } of turnsOf(conversation, adapter)) this.add(prompt, answer);
    this.showNote();
  }

  showNote() {
    const { about, prompts } = noteOf(this.adapter);
    const isEmpty = this.turns.length === 0;
    setText(this.about, this.adapter === kBase ? "The model without an adapter" : about);
    this.about.hidden = !isEmpty || !this.about.textContent;
    this.tools.hidden = isEmpty;
    if (!isEmpty) return;
    const hint = make("p", { class: "hint", text: prompts.length > 0 ? "Try" : "Answers come here" });
    this.log.replaceChildren(hint, ...prompts.slice(0, kExamples).map((text) => make("button", {
      type: "button", class: "example", text, onclick: () => this.onExample(text),
    })));
  }

  add(prompt, answer) {
    if (this.turns.length === 0) this.log.replaceChildren();
    const turn = new Turn(prompt, answer);
    this.turns.push(turn);
    this.log.append(turn.element);
    this.tools.hidden = false;
    this.about.hidden = true;
    this.log.scrollTop = this.log.scrollHeight;
    return turn;
  }

  draw() {
    const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
    this.turns.at(-1)?.draw();
    if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  async copy(kind, button) {
    const text = kind === "Copy" ? this.turns.at(-1).answer.text : this.snippet(kind, this.adapter);
    await copyText(text);
    setText(button, "Copied");
    setTimeout(() => setText(button, kind), 1200);
  }
}

/** The cards of the page. `context`: { conversation(), onExample(text), snippet(kind, adapter) }. */
export class Cards {
  constructor(place, context) {
    this.place = place;
    this.context = context;
    this.cards = new Map();
    this.changed = new Set();
  }

  /** One for each adapter, in this order; those that are there stay, unless `isNew`. */
  show(adapters, isNew = false) {
    const conversation = this.context.conversation();
    const kept = new Map();
    for (const adapter of adapters) {
      const known = isNew ? undefined : this.cards.get(adapter);
      kept.set(adapter, known ?? new Card(adapter, { ...this.context, conversation }));
    }
    const isSame = kept.size === this.cards.size && [...kept].every(([name, card]) => this.cards.get(name) === card);
    this.cards = kept;
    if (!isSame) this.place.replaceChildren(...[...kept.values()].map((card) => card.element));
    for (const card of kept.values()) card.showNote();
  }

  add(turn) {
    for (const answer of turn.answers) this.cards.get(answer.adapter)?.add(turn.prompt, answer);
  }

  /** Draws it with the next frame; long answers four times a second, so that drawing them stays cheap. */
  redraw(answer) {
    if (this.changed.size === 0) {
      const draw = () => {
        for (const adapter of this.changed) this.cards.get(adapter)?.draw();
        this.changed.clear();
      };
      if (answer.text.length > kOften) setTimeout(draw, 250);
      else requestAnimationFrame(draw);
    }
    this.changed.add(answer.adapter);
  }
}
