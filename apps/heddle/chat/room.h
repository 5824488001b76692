#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "chat/chat.h"
#include "chat/commands.h"
#include "chat/conversation.h"
#include "chat/display.h"
#include "chat/input.h"
#include "chat/signals.h"

namespace heddle::app {

/// Brings together who asks, the conversation and the engine that answers: reads lines and does
/// what they ask until they end.
class ChatRoom {
 public:
  /// What the room is made of; all outlive it.
  struct Parts {
    Engine& engine;
    ChatDisplay& display;
    ChatInput& input;
    const ChatSignals* signals;  // none: signals do what they usually do
  };

  /// `in_use`: the adapter to begin with, empty for the base model.
  ChatRoom(const ChatOptions& options, std::string in_use, const Parts& parts);

  /// Returns the program's exit code, as chat() does.
  int run();

 private:
  using OnText = std::function<void(size_t index, const std::string& text, bool ended)>;

  ChatRead read_message(std::string& message);
  void take_line(const ChatLine& line);
  void take_command(const std::string& name, const std::string& argument);
  void fail(const std::string& text);

  bool ask(const std::string& prompt);
  void ask_again();
  void compare(const std::string& argument);
  std::vector<Completion> show_side_by_side(const std::vector<std::string>& names,
                                            const std::vector<Request>& requests, int num_columns);
  std::vector<Completion> show_in_turn(const std::vector<std::string>& names,
                                       const std::vector<Request>& requests);
  bool is_refused(const Request& request);
  std::vector<Completion> answer(const std::vector<Request>& requests, const OnText& on_text);
  void meet_signals(const std::vector<RequestId>& running);
  [[nodiscard]] std::string end_of(const Completion& completion) const;

  void use_adapter(const std::string& name);
  void set_system(const std::string& text);
  void show_help() const;
  [[nodiscard]] bool is_known(const std::string& name) const;
  [[nodiscard]] std::string known_names() const;

  const ChatOptions& options_;
  Parts parts_;
  Conversation conversation_;
  std::vector<std::string> names_;  // base, then the adapters
  std::string in_use_;              // one of them
  bool ended_ = false, failed_ = false;
  int signal_ = 0;  // that ends the program
};

}  // namespace heddle::app
