#include "chat/chat.h"

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <langinfo.h>
#include <optional>
#include <unistd.h>

#include "answer_options.h"
#include "chat/commands.h"
#include "chat/display.h"
#include "chat/history.h"
#include "chat/input.h"
#include "chat/room.h"
#include "chat/signals.h"
#include "open_model.h"

namespace heddle::app {
namespace {

/// Characters are UTF-8, whatever the environment says: so are the model's.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// Loads the model with room for one row of each adapter and of the base model.
Engine open_for_comparisons(ModelOptions options, bool interactive) {
  constexpr size_t kMostRows = 16;  // with --adapters; others wait
  const size_t num_adapters = adapter_names(options).size();
  const bool are_given = options.engine.adapter_dir.empty();
  options.engine.max_batch =
      static_cast<int>(are_given ? num_adapters : std::min(num_adapters, kMostRows)) + 1;
  std::optional<UsualSignals> usual;  // ctrl-C while the model loads ends the program
  if (interactive) usual.emplace();
  return open_model(options, false, [&](const Engine& engine) {
    if (interactive) tell_engine(engine);
  });
}

std::unique_ptr<ChatInput> make_input(const ChatOptions& options, const ChatSignals* signals,
                                      const ChatDisplay& display) {
  if (signals == nullptr) return make_plain_input();
  std::vector<std::string> names = {kBaseName};
  for (std::string& name : adapter_names(options.model)) names.push_back(std::move(name));
  return make_edited_input(
      *signals,
      {.history_path = options.history ? chat_history_path() : "",
       .colour = display.colour(),
       .complete = [names](const std::string& line) { return complete_chat_line(line, names); },
       .warn = [&display](const std::string& text) { display.error(text); }});
}

}  // namespace

int chat(const ChatOptions& options) {
  const std::string in_use = adapter_in_use(options.model, options.answer.use);
  use_utf8();
  // As a shell does: a person types where both are terminals.
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  std::optional<ChatSignals> taken;
  if (interactive) taken.emplace();
  const ChatSignals* signals = taken ? &*taken : nullptr;
  Engine engine = open_for_comparisons(options.model, interactive);
  check_adapter_names(engine.model(), options.model, names_of_base(engine.model()));
  ChatOptions completed = options;
  completed.answer = complete_answer(options.answer, engine.model().generation);
  ChatDisplay display(interactive);
  const std::unique_ptr<ChatInput> input = make_input(options, signals, display);
  return ChatRoom(completed, in_use, {engine, display, *input, signals}).run();
}

}  // namespace heddle::app
