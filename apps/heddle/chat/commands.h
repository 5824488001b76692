#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::app {

/// A line that begins with a slash.
struct ChatCommand {
  std::string_view name;       // with its slash
  std::string_view arguments;  // as `/help` shows them
  std::string_view help;
  bool takes_adapter;  // its argument begins with an adapter's name
};

/// All commands, in the order of `/help`.
[[nodiscard]] std::span<const ChatCommand> chat_commands();

/// A line of input, taken apart.
struct ChatLine {
  enum class Kind { kEmpty, kPrompt, kCommand };
  Kind kind = Kind::kEmpty;
  std::string command;  // "/name", known or not
  std::string text;     // the prompt, or the command's argument without blanks around it
};

/// "/name argument" is a command, "//text" the prompt "/text", a line of blanks is empty, all else
/// is a prompt.
[[nodiscard]] ChatLine parse_chat_line(const std::string& line);

/// The command whose name is nearest to `name`, empty if none is near.
[[nodiscard]] std::string_view nearest_command(std::string_view name);

/// What an argument of `/compare` asks.
struct Comparison {
  std::vector<std::string> names;  // empty: all
  std::string prompt;
};

/// The first word is a list of names if it is names joined by commas and `known` has at least one
/// of them.
[[nodiscard]] Comparison parse_comparison(const std::string& text,
                                          const std::vector<std::string>& known);

/// The lines that the beginning `line` may become: a command's name in the first place, names of
/// adapters after those commands that take them.
[[nodiscard]] std::vector<std::string> complete_chat_line(std::string_view line,
                                                          const std::vector<std::string>& adapters);

}  // namespace heddle::app
