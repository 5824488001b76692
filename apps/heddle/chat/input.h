#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chat/signals.h"

namespace heddle::app {

/// What came of reading a line. kDropped: ctrl-C in a line, kInterrupted: ctrl-C where the line was
/// empty, kSignal: a signal that ends the program.
enum class ChatRead { kLine, kEnd, kDropped, kInterrupted, kSignal };

/// Where lines come from.
class ChatInput {
 public:
  virtual ~ChatInput() = default;
  /// Reads a line, without its end, after the prompt.
  virtual ChatRead read(const std::string& prompt, std::string& line) = 0;
  /// The signal of kSignal.
  [[nodiscard]] virtual int signal() const { return 0; }
};

/// Lines of standard input as they are, without a prompt.
[[nodiscard]] std::unique_ptr<ChatInput> make_plain_input();

struct EditedInputOptions {
  std::string history_path;  // empty: lines are not kept
  bool colour = false;       // of the prompt
  /// The lines that a beginning may become, for the tabulator.
  std::function<std::vector<std::string>(const std::string&)> complete;
  /// Called once when the history cannot be kept.
  std::function<void(const std::string&)> warn;
};

/// Lines that are edited on the terminal, with history and completion. Prompt and echo go to
/// standard error, so that standard output holds answers only.
[[nodiscard]] std::unique_ptr<ChatInput> make_edited_input(const ChatSignals& signals,
                                                           EditedInputOptions options);

}  // namespace heddle::app
