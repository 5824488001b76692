// Conversations: what was asked and answered, kept in this browser alone.

const kPlace = "heddle.conversations";
const kMostKept = 30;

/** { id, title, time, turns: [{ prompt, answers: [{ adapter, text, thoughts, finish, error, ... }] }] } */
export function newConversation() {
  return { id: `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`, title: "", time: Date.now(), turns: [] };
}

export function addTurn(conversation, prompt, adapters) {
  const answers = adapters.map((adapter) => ({ adapter, text: "", thoughts: "", tokens: 0, finish: null, error: null }));
  const turn = { prompt, answers };
  if (conversation.turns.length === 0) conversation.title = prompt.trim().slice(0, 80);
  conversation.turns.push(turn);
  conversation.time = Date.now();
  return turn;
}

/** The turns in which the adapter took part: [{ prompt, answer }]. */
export function turnsOf(conversation, adapter) {
  return conversation.turns.flatMap(({ prompt, answers }) => {
    const answer = answers.find((each) => each.adapter === adapter);
    return answer ? [{ prompt, answer }] : [];
  });
}

/** What an adapter is sent: its own turns, and the system message. Answers that failed are left out. */
export function messagesOf(conversation, adapter, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  const turns = turnsOf(conversation, adapter);
  turns.forEach(({ prompt, answer }, i) => {
    const isLast = i + 1 === turns.length;
    if (!isLast && answer.text === "") return;
    messages.push({ role: "user", content: prompt });
    if (!isLast) messages.push({ role: "assistant", content: answer.text });
  });
  return messages;
}

/** The request for the last turn: one prompt for all where their conversations are the same. */
export function bodyOf(conversation, { model, system, temperature, maxTokens }) {
  const adapters = conversation.turns.at(-1).answers.map((answer) => answer.adapter);
  const each = adapters.map((adapter) => messagesOf(conversation, adapter, system));
  const isOne = each.every((messages) => JSON.stringify(messages) === JSON.stringify(each[0]));
  const body = { model, temperature, max_tokens: maxTokens };
  if (adapters.length === 1) return { ...body, model: adapters[0] ?? model, messages: each[0] };
  if (isOne) return { ...body, messages: each[0], each_adapter: adapters };
  return { ...body, messages: [], each_adapter: adapters.map((name, i) => ({ name, messages: each[i] })) };
}

export function keptConversations() {
  try {
    const kept = JSON.parse(localStorage.getItem(kPlace) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => Array.isArray(each?.turns)) : [];
  } catch {
    return [];
  }
}

function write(conversations) {
  for (let kept = conversations.slice(0, kMostKept); ; kept = kept.slice(0, -1)) {
    try {
      return localStorage.setItem(kPlace, JSON.stringify(kept));
    } catch {  // there is no room: the oldest goes
      if (kept.length === 0) return;
    }
  }
}

export function keep(conversation) {
  write([conversation, ...keptConversations().filter((each) => each.id !== conversation.id)]);
}

export function forget(id) {
  write(keptConversations().filter((each) => each.id !== id));
}

export function forgetAll() {
  write([]);
}
