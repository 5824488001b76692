#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/columns.h"

namespace heddle::app {

/// Where a conversation is shown: answers on standard output and nothing else, all that is said
/// about them on standard error. Colours and columns only where these are terminals.
class ChatDisplay {
 public:
  /// `interactive`: a person types the lines and reads more than a script.
  explicit ChatDisplay(bool interactive);

  [[nodiscard]] bool interactive() const { return interactive_; }
  /// Colours on standard error, where the prompt is.
  [[nodiscard]] bool colour() const { return colour_err_; }

  /// Text of an answer as it comes. On a terminal control characters are shown as U+FFFD: a model
  /// could otherwise move the cursor.
  void answer(const std::string& text);
  /// Ends the answer's line. Throws std::system_error when standard output cannot be written.
  void end_answer();
  /// The name above one of several answers.
  void heading(const std::string& name);

  /// How many answers are side by side: 1 where standard output is no terminal.
  [[nodiscard]] int num_columns(int num_answers) const;
  void columns(const std::vector<ChatColumn>& columns, int per_band);

  /// The output of a command.
  void tell(const std::string& text) const;
  /// What is good to know for who types; nothing in a script.
  void note(const std::string& text) const;
  /// What is good to know in a script too.
  void remark(const std::string& text) const;
  void error(const std::string& text) const;
  /// A line that is written over; empty: away with it. Terminals only.
  void progress(const std::string& text) const;

 private:
  bool interactive_, terminal_out_, colour_out_, colour_err_;
};

}  // namespace heddle::app
