#include "chat/room.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <utility>

#include "heddle/core/error.h"

#include "open_model.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using Clock = std::chrono::steady_clock;

/// The name of an adapter as requests have it.
std::string adapter_of(const std::string& name) { return name == kBaseName ? "" : name; }

/// Tokens of all answers, what of their prompts the prefix cache had, and the time since `begin`.
std::string timing_of(const std::vector<Completion>& completions, Clock::time_point begin) {
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  for (const Completion& completion : completions) {
    prompt_tokens += completion.prompt_tokens;
    cached_tokens += completion.cached_tokens;
    tokens += std::ssize(completion.token_ids);
  }
  char text[160];
  std::snprintf(text, sizeof(text),
                "%lld prompt tokens, %lld of them cached, %lld tokens, %.3f s, %.1f tokens/s",
                static_cast<long long>(prompt_tokens), static_cast<long long>(cached_tokens),
                static_cast<long long>(tokens), seconds.count(),
                static_cast<double>(tokens) / std::max(seconds.count(), 1e-9));
  return text;
}

/// Shows answers one after another, the first unfinished one as it comes.
class InTurn {
 public:
  InTurn(ChatDisplay& display, const std::vector<std::string>& names)
      : display_(display), names_(names), held_(names.size()), ended_(names.size()) {}

  void take(size_t index, const std::string& text, bool ended) {
    held_[index] += text;
    if (ended) ended_[index] = true;
    while (current_ < names_.size()) {
      if (!begun_) display_.heading(names_[current_]);
      begun_ = true;
      display_.answer(std::exchange(held_[current_], ""));
      if (!ended_[current_]) return;
      display_.end_answer();
      ++current_;
      begun_ = false;
    }
  }

 private:
  ChatDisplay& display_;
  const std::vector<std::string>& names_;
  std::vector<std::string> held_;
  std::vector<bool> ended_;
  size_t current_ = 0;
  bool begun_ = false;
};

}  // namespace

ChatRoom::ChatRoom(const ChatOptions& options, std::string in_use, const Parts& parts)
    : options_(options),
      parts_(parts),
      conversation_(options.answer),
      names_({kBaseName}),
      in_use_(in_use.empty() ? kBaseName : std::move(in_use)) {
  for (std::string& name : adapter_names(options.model)) names_.push_back(std::move(name));
}

int ChatRoom::run() {
  parts_.display.note(shown(parts_.engine.model().name) + " with " + known_names() +
                      "; /help lists the commands, ctrl-D ends");
  for (std::string message; !ended_ && signal_ == 0;) {
    switch (read_message(message)) {
      case ChatRead::kLine: take_line(parse_chat_line(message)); break;
      case ChatRead::kDropped: break;
      case ChatRead::kInterrupted: parts_.display.note("ctrl-D or /quit ends"); break;
      case ChatRead::kEnd: ended_ = true; break;
      case ChatRead::kSignal: signal_ = parts_.input.signal(); break;
    }
  }
  if (signal_ != 0) return 128 + signal_;
  return failed_ && !parts_.display.interactive() ? 1 : 0;
}

/// Reads lines up to one that does not end with a backslash; two of them are one.
ChatRead ChatRoom::read_message(std::string& message) {
  message.clear();
  std::string prompt = in_use_ + ">";
  for (std::string line;;) {
    const ChatRead read = parts_.input.read(prompt, line);
    if (read == ChatRead::kInterrupted && !message.empty()) return ChatRead::kDropped;
    if (read == ChatRead::kEnd && !message.empty()) return ChatRead::kLine;
    if (read != ChatRead::kLine) return read;
    const bool goes_on = line.ends_with('\\') && !line.ends_with("\\\\");
    if (line.ends_with('\\')) line.pop_back();
    message += line;
    if (!goes_on) return ChatRead::kLine;
    message += '\n';
    prompt = "...";
  }
}

void ChatRoom::take_line(const ChatLine& line) {
  switch (line.kind) {
    case ChatLine::Kind::kEmpty: break;
    case ChatLine::Kind::kPrompt: ask(line.text); break;
    case ChatLine::Kind::kCommand: take_command(line.command, line.text); break;
  }
}

void ChatRoom::take_command(const std::string& name, const std::string& argument) {
  const auto commands = chat_commands();
  const auto command = std::ranges::find(commands, name, &ChatCommand::name);
  if (command == commands.end()) {
    const std::string near(nearest_command(name));
    return fail("unknown command " + name +
                (near.empty() ? ", /help lists them." : ", did you mean " + near + "?") +
                " A message that begins with a slash is written with two");
  }
  if (command->arguments.empty() && !argument.empty()) return fail(name + " takes no argument");
  if (name == "/adapter") return use_adapter(argument);
  if (name == "/compare") return compare(argument);
  if (name == "/system") return set_system(argument);
  if (name == "/retry") return ask_again();
  if (name == "/help") return show_help();
  if (name == "/quit") {
    ended_ = true;
    return;
  }
  conversation_.reset();  // what is left is /reset
  parts_.display.note("the conversation is empty");
}

void ChatRoom::fail(const std::string& text) {
  failed_ = true;
  parts_.display.error(text);
}

/// Prints why the engine would refuse the request, which is not submitted then.
bool ChatRoom::is_refused(const Request& request) {
  try {
    parts_.engine.check(request);
    return false;
  } catch (const Error& error) {
    fail(std::string(error.what()) + "; the message is not kept" +
         (conversation_.num_turns() > 0 ? ", /reset makes room" : ""));
    return true;
  }
}

/// Asks and keeps the answer; returns whether there was one to keep.
bool ChatRoom::ask(const std::string& prompt) {
  const std::vector<Request> requests = {conversation_.ask(prompt, adapter_of(in_use_))};
  if (is_refused(requests.front())) return false;
  const Clock::time_point begin = Clock::now();
  const auto show = [this](size_t, const std::string& text, bool) { parts_.display.answer(text); };
  const std::vector<Completion> completions = answer(requests, show);
  parts_.display.end_answer();
  const Completion& completion = completions.front();
  const bool is_whole = completion.finish_reason != FinishReason::kCancelled &&
                        completion.finish_reason != FinishReason::kError;
  const bool unsaid = !is_whole && completion.token_ids.empty();
  const std::string end = end_of(completion) + (unsaid ? "; the message is not kept" : "");
  if (!end.empty()) parts_.display.remark(end);
  if (options_.timings) parts_.display.remark(timing_of(completions, begin));
  if (!unsaid) conversation_.add_turn(prompt, completion.text);
  return !unsaid;
}

void ChatRoom::ask_again() {
  const Conversation before = conversation_;
  const std::optional<std::string> question = conversation_.take_last_question();
  if (!question) return fail("/retry: nothing was asked yet");
  if (!ask(*question)) conversation_ = before;
}

void ChatRoom::compare(const std::string& argument) {
  const Comparison asked = parse_comparison(argument, names_);
  for (const std::string& name : asked.names) {
    if (!is_known(name)) {
      return fail("/compare: no adapter \"" + name + "\"; there are " + known_names());
    }
  }
  if (asked.prompt.empty()) return fail("/compare: a prompt is missing: /compare [NAMES] PROMPT");
  const std::vector<std::string>& names = asked.names.empty() ? names_ : asked.names;
  std::vector<Request> requests;
  for (const std::string& name : names) {
    requests.push_back(conversation_.ask(asked.prompt, adapter_of(name)));
  }
  if (is_refused(requests.front())) return;
  const Clock::time_point begin = Clock::now();
  const int num_columns = parts_.display.num_columns(static_cast<int>(names.size()));
  const std::vector<Completion> completions = num_columns > 1
                                                  ? show_side_by_side(names, requests, num_columns)
                                                  : show_in_turn(names, requests);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string end = end_of(completions[i]);
    if (!end.empty()) parts_.display.remark(names[i] + ": " + end);
  }
  if (options_.timings) parts_.display.remark(timing_of(completions, begin));
}

std::vector<Completion> ChatRoom::show_side_by_side(const std::vector<std::string>& names,
                                                    const std::vector<Request>& requests,
                                                    int num_columns) {
  const int64_t before = parts_.engine.stats().generated_tokens;
  int64_t shown = 0;
  const auto count = [&](size_t, const std::string&, bool) {
    const int64_t now = parts_.engine.stats().generated_tokens - before;
    if (now == shown) return;
    shown = now;
    parts_.display.progress("(" + std::to_string(shown) + " tokens)");
  };
  std::vector<Completion> completions = answer(requests, count);
  parts_.display.progress("");
  std::vector<ChatColumn> columns;
  for (size_t i = 0; i < names.size(); ++i) columns.push_back({names[i], completions[i].text});
  parts_.display.columns(columns, num_columns);
  return completions;
}

std::vector<Completion> ChatRoom::show_in_turn(const std::vector<std::string>& names,
                                               const std::vector<Request>& requests) {
  InTurn in_turn(parts_.display, names);
  const auto show = [&](size_t index, const std::string& text, bool ended) {
    in_turn.take(index, text, ended);
  };
  return answer(requests, show);
}

/// Runs the requests in one batch to their ends, or until a signal ends them.
std::vector<Completion> ChatRoom::answer(const std::vector<Request>& requests,
                                         const OnText& on_text) {
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(parts_.engine.submit(request));
  std::vector<Completion> completions(requests.size());
  while (parts_.engine.num_unfinished() > 0) {
    meet_signals(ids);
    for (Event& event : parts_.engine.step()) {
      const auto index = static_cast<size_t>(std::ranges::find(ids, event.request) - ids.begin());
      on_text(index, event.text, event.completion.has_value());
      if (!event.completion) continue;
      failed_ |= event.completion->finish_reason == FinishReason::kError;
      completions[index] = std::move(*event.completion);
    }
  }
  return completions;
}

void ChatRoom::meet_signals(const std::vector<RequestId>& running) {
  if (parts_.signals == nullptr) return;
  for (int signal = parts_.signals->take(); signal != 0; signal = parts_.signals->take()) {
    if (signal == SIGTSTP) parts_.signals->suspend();
    if (ends_program(signal)) signal_ = signal;
    if (signal != SIGINT && !ends_program(signal)) continue;
    for (const RequestId request : running) parts_.engine.cancel(request);
  }
}

/// Why the answer ended, nothing if the model ended it.
std::string ChatRoom::end_of(const Completion& completion) const {
  const int64_t num_tokens = std::ssize(completion.token_ids);
  const std::string after = " after " + std::to_string(num_tokens) + " tokens";
  if (completion.finish_reason == FinishReason::kCancelled) return "stopped" + after;
  if (completion.finish_reason == FinishReason::kError) {
    return "failed" + after + ": " + completion.error;
  }
  if (completion.finish_reason != FinishReason::kLength) return "";
  return "cut off" + after +
         (num_tokens == options_.answer.max_tokens ? ", --max-tokens"
                                                   : ": the context is full; /reset makes room");
}

void ChatRoom::use_adapter(const std::string& name) {
  if (!name.empty()) {
    if (!is_known(name)) {
      return fail("/adapter: no adapter \"" + name + "\"; there are " + known_names());
    }
    in_use_ = name;
    return parts_.display.note("answers come from " + name);
  }
  size_t width = 0;
  for (const std::string& known : names_) width = std::max(width, known.size());
  std::string list;
  for (size_t i = 0; i < names_.size(); ++i) {
    list += std::string(i > 0 ? "\n" : "") + (names_[i] == in_use_ ? "* " : "  ") + names_[i] +
            std::string(width - names_[i].size() + 2, ' ') +
            (i == 0 ? "the model without an adapter" : options_.model.adapters[i - 1].folder);
  }
  parts_.display.tell(list);
}

void ChatRoom::set_system(const std::string& text) {
  if (text.empty()) {
    const std::optional<std::string>& system = conversation_.system();
    return parts_.display.tell(
        system ? *system : "no system message is set; the model's chat template may have its own");
  }
  const bool take_away = text == "-";
  conversation_.set_system(take_away ? std::nullopt : std::optional(text));
  parts_.display.note(std::string("the system message is ") + (take_away ? "removed" : "set") +
                      ", from the next answer on");
}

void ChatRoom::show_help() const {
  std::string text;
  for (const ChatCommand& command : chat_commands()) {
    std::string usage = std::string(command.name) + " " + std::string(command.arguments);
    usage.resize(std::max<size_t>(usage.size(), 26), ' ');
    text += usage + std::string(command.help) + "\n";
  }
  parts_.display.tell(text +
                      "A line that ends with \\ goes on in the next. A message that begins with a "
                      "slash is written with two.");
}

bool ChatRoom::is_known(const std::string& name) const {
  return std::ranges::find(names_, name) != names_.end();
}

std::string ChatRoom::known_names() const {
  std::string names;
  constexpr size_t kMostShown = 32;
  for (const std::string& name : std::span(names_).first(std::min(names_.size(), kMostShown))) {
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names_.size() > kMostShown) {
    names += " and " + std::to_string(names_.size() - kMostShown) + " more";
  }
  return names;
}

}  // namespace heddle::app
