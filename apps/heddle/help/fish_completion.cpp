#include "help/completion.h"

namespace heddle::app {
namespace {

constexpr const char* kFishFunctions = R"(
# Whether the command is the one given; without one, whether none is there yet.
function __heddle_command
    set -l words (commandline -opc)
    if test (count $argv) -eq 0
        test (count $words) -eq 1
    else
        test (count $words) -gt 1; and test "$words[2]" = $argv[1]
    end
end

# NAME=DIR: folders after the '='.
function __heddle_named_folder
    set -l word (string replace -r -- '^--adapter=' '' (commandline -ct))
    set -l parts (string split -m 1 = -- $word)
    if test (count $parts) -eq 2
        for folder in (__fish_complete_directories $parts[2])
            echo -- $parts[1]=$folder
        end
    end
end

# The names that --adapter has given earlier on the line, and base.
function __heddle_adapter
    echo base
    string match -arg -- '--adapter[ =]([^= ]+)=' (string join ' ' -- (commandline -opc))
end

)";

std::string quoted(const std::string& text) {
  std::string result = "'";
  result += escaped(text, "'\\", "\\");
  return result + "'";
}

/// The arguments of `complete` for a value.
std::string values_of(const ProgramText& program, const OptionText& option) {
  switch (option.kind) {
    case ValueKind::kNone: return "";
    case ValueKind::kPath: return " -r -F";
    case ValueKind::kNamedFolder: return " -x -a '(__heddle_named_folder)'";
    case ValueKind::kAdapter: return " -x -a '(__heddle_adapter)'";
    case ValueKind::kTopic:
    case ValueKind::kChoice: {
      std::string words;
      for (const std::string& choice : choices_of(program, option)) words += " " + choice;
      return " -x -a '" + words.substr(1) + "'";
    }
    case ValueKind::kOther: break;
  }
  return " -x";
}

std::string completions(const ProgramText& program, const CommandText& command,
                        const std::string& condition) {
  std::string lines;
  for (const OptionText& option : command.options) {
    std::string line = "complete -c heddle -n '" + condition + "'";
    for (const std::string& name : option.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    line += values_of(program, option);
    if (!option.text.empty()) line += " -d " + quoted(option.text);
    if (!option.names.empty() || option.kind != ValueKind::kOther) lines += line + "\n";
  }
  return lines;
}

}  // namespace

std::string fish_completion(const ProgramText& program) {
  std::string script = "# fish completion for heddle, as printed by: heddle completion fish\n";
  script += kFishFunctions;
  script += "complete -c heddle -f\n";
  for (const CommandText& command : program.commands) {
    script += "complete -c heddle -n __heddle_command -a " + command.name + " -d " +
              quoted(command.text) + "\n";
  }
  script += completions(program, program.program, "__heddle_command");
  for (const CommandText& command : program.commands) {
    script += "\n";
    script += completions(program, command, "__heddle_command " + command.name);
  }
  return script;
}

}  // namespace heddle::app
