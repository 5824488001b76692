#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "options.h"

namespace heddle::app {

/// What was said so far, and how the next answer is made. Knows neither engine nor terminal.
class Conversation {
 public:
  explicit Conversation(AnswerOptions options)
      : options_(std::move(options)), system_(options_.system) {}

  /// The request for an answer to `prompt` by an adapter, after what was said so far.
  [[nodiscard]] Request ask(const std::string& prompt, const std::string& adapter) const;

  /// Keeps a question with its answer. The next answer draws with the next seed.
  void add_turn(const std::string& prompt, const std::string& answer);
  /// Takes the last question and its answer out; nothing if there is none. Returns the question.
  std::optional<std::string> take_last_question();
  /// Forgets all turns and begins with the first seed; the system message stays.
  void reset();

  [[nodiscard]] const std::optional<std::string>& system() const { return system_; }
  void set_system(std::optional<std::string> text) { system_ = std::move(text); }
  [[nodiscard]] int64_t num_turns() const { return static_cast<int64_t>(turns_.size()) / 2; }

 private:
  AnswerOptions options_;
  std::optional<std::string> system_;
  std::vector<Message> turns_;  // of the user and the assistant, by turns
  int64_t num_answers_ = 0;     // also those that were taken out
};

}  // namespace heddle::app
