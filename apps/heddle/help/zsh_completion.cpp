#include "help/completion.h"

namespace heddle::app {
namespace {

constexpr const char* kZshFunctions = R"(
# NAME=DIR: folders after the '='.
_heddle_named_folder() {
  if compset -P 1 '*='; then
    _files -/
  else
    _message 'NAME=DIR'
  fi
}

# The names that --adapter has given earlier on the line, and base.
_heddle_adapter() {
  local -a names=(base)
  local i
  for (( i = 1; i < CURRENT; i++ )); do
    case $words[i] in
      --adapter) names+=("${words[i+1]%%=*}") ;;
      --adapter=*=*) names+=("${${words[i]#*=}%%=*}") ;;
    esac
  done
  compadd -- $names
}
)";

constexpr const char* kEnd = R"(
# Either found in $fpath and called, or read by `source`.
if [[ $funcstack[1] == _heddle ]]; then
  _heddle "$@"
else
  compdef _heddle heddle
fi
)";

std::string zsh_quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'') {
      result += "'\\''";
    } else {
      result += letter;
    }
  }
  return result + "'";
}

std::string action_of(const ProgramText& program, const OptionText& option) {
  switch (option.kind) {
    case ValueKind::kPath: return "_files";
    case ValueKind::kNamedFolder: return "_heddle_named_folder";
    case ValueKind::kAdapter: return "_heddle_adapter";
    case ValueKind::kTopic:
    case ValueKind::kChoice: {
      std::string words = "(";
      for (const std::string& choice : choices_of(program, option)) words += choice + " ";
      words.back() = ')';
      return words;
    }
    case ValueKind::kOther:
    case ValueKind::kNone: break;
  }
  // Nothing, for an option with a message what it is. With a message an argument would hide
  // options.
  return option.names.empty() ? "()" : " ";
}

/// The specification for _arguments of one name of an option, or of an argument.
std::string specification(const ProgramText& program, const OptionText& option,
                          const std::string& name) {
  std::string value;
  if (option.kind != ValueKind::kNone) {
    value = ":";
    value += escaped(option.value, ":\\", "\\") + ":" + action_of(program, option);
  }
  if (name.empty())
    return zsh_quoted((option.repeated ? "*" : option.required ? "1" : "1:") + value);
  std::string rivals;  // a given option is not offered again, under whatever name
  for (const std::string& rival : option.names) rivals += (rivals.empty() ? "" : " ") + rival;
  std::string text = option.repeated ? "*" : "(" + rivals + ")";
  text += name;
  if (!value.empty()) text += name.starts_with("--") ? "=" : "+";  // --model=FILE too, and -mFILE
  return zsh_quoted(text + "[" + escaped(option.text, "[]\\", "\\") + "]" + value);
}

std::string specifications(const ProgramText& program, const CommandText& command,
                           const std::string& indent) {
  std::string lines;
  for (const OptionText& option : command.options) {
    std::vector<std::string> names = option.names;
    if (names.empty()) names.emplace_back();
    for (const std::string& name : names) {
      lines += " \\\n" + indent + specification(program, option, name);
    }
  }
  return lines;
}

}  // namespace

std::string zsh_completion(const ProgramText& program) {
  std::string script = "#compdef heddle\n# As printed by: heddle completion zsh\n";
  script += kZshFunctions;
  script += "\n_heddle_commands() {\n  local -a commands=(\n";
  for (const CommandText& command : program.commands) {
    script += "    " + zsh_quoted(command.name + ":" + escaped(command.text, ":\\", "\\")) + "\n";
  }
  script += "  )\n  _describe -t commands command commands\n}\n\n_heddle() {\n";
  script += "  local curcontext=$curcontext state state_descr line\n";
  script += "  typeset -A opt_args\n  _arguments -C -S";
  script += specifications(program, program.program, "    ");
  script += " \\\n    '1:command:_heddle_commands' \\\n    '*::argument:->arguments'\n";
  script += "  [[ $state == arguments ]] || return\n";
  script += "  curcontext=\"${curcontext%:*}-$words[1]:\"\n  case $words[1] in\n";
  for (const CommandText& command : program.commands) {
    script += "    " + command.name + ")\n      _arguments -S";
    script += specifications(program, command, "        ") + "\n      ;;\n";
  }
  return script + "  esac\n}\n" + kEnd;
}

}  // namespace heddle::app
