#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// What the command line declares, as plain data: help, completions and the man page are made from
/// it, and none of them needs CLI11, which takes long to compile.
namespace heddle::app {

/// What a value on the command line is, for completion.
enum class ValueKind {
  kNone,  // a flag takes none
  kPath,
  kNamedFolder,  // NAME=DIR
  kAdapter,      // a name given with --adapter, or base
  kTopic,        // what `heddle help` knows
  kChoice,       // one of a list
  kOther,        // only the user knows
};

/// An option, or an argument without a name ("PROMPT").
struct OptionText {
  std::vector<std::string> names;  // "-m", "--model"; empty: an argument
  std::string value;               // "FILE"; empty: a flag
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;  // of kChoice
  std::string text, default_value, group;
  bool required = false, repeated = false;
};

struct CommandText {
  std::string name, text;
  std::vector<OptionText> options;    // group by group, --help last
  std::vector<std::string> examples;  // whole lines for a shell
};

struct ProgramText {
  CommandText program;
  std::vector<CommandText> commands;
};

/// What `app` declares. Examples are the lines of footers, groups are those of the options; options
/// without a group come last, as "Options".
[[nodiscard]] ProgramText describe(const CLI::App& app);

/// The command of this name, nullptr where there is none.
[[nodiscard]] const CommandText* find_command(const ProgramText& program, const std::string& name);

/// The words that may follow `heddle help`: commands, then topics.
[[nodiscard]] std::vector<std::string> help_words(const ProgramText& program);

}  // namespace heddle::app
