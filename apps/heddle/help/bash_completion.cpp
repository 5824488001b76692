#include <map>

#include "help/completion.h"

namespace heddle::app {
namespace {

/// Splits the line as the program would, then completes the word at the cursor. Bash also cuts
/// words at '=' and ':' (COMP_WORDBREAKS): they are joined again, and replies begin after the last
/// cut.
constexpr const char* kBashFunctions = R"(
# The paths that begin with $1, folders alone where $2 is -d.
_heddle_paths() {
  local begin=${1#[\"\']}
  mapfile -t COMPREPLY < <(compgen "$2" -- "$begin")
  compopt -o filenames 2>/dev/null
}

# The replies of the words $2... that begin with $1.
_heddle_words() {
  local begin=$1 word
  shift
  for word; do
    [[ $word == "$begin"* ]] && COMPREPLY+=("$word")
  done
}

# Candidates for a value of kind $1 that begins with $2. Adds to before what comes before it.
_heddle_complete_value() {
  case $1 in
    path) _heddle_paths "$2" -f ;;
    named_folder)
      [[ $2 == *=* ]] || return
      before+=${2%%=*}=
      _heddle_paths "${2#*=}" -d
      ;;
    adapter) _heddle_words "$2" base "${adapters[@]}" ;;
    word:*) _heddle_words "$2" ${1#word:} ;;
  esac
}

_heddle() {
  COMPREPLY=()
  local word glue= current before= cut= command= option= arguments_only= kind i
  local -a line=() adapters=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ ($word == [=:] || $glue) && ${#line[@]} -gt 0 ]]; then
      line[-1]+=$word
    else
      line+=("$word")
    fi
    glue=
    [[ $word == [=:] ]] && glue=1
  done
  current=${line[-1]}

  for word in "${line[@]:1:${#line[@]}-2}"; do
    if [[ $option ]]; then
      [[ $option == --adapter ]] && adapters+=("${word%%=*}")
      option=
    elif [[ $arguments_only ]]; then
      continue
    elif [[ $word == -- ]]; then
      arguments_only=1
    elif [[ $word == --adapter=* ]]; then
      word=${word#*=}
      adapters+=("${word%%=*}")
    elif [[ $word == -* ]]; then
      _heddle_kind "$command" "$word"
      [[ $kind ]] && option=$word
    elif [[ -z $command ]]; then
      command=$word
    fi
  done

  if [[ $option ]]; then
    _heddle_kind "$command" "$option"
    _heddle_complete_value "$kind" "$current"
  elif [[ -z $arguments_only && $current == --*=* ]]; then
    before=${current%%=*}=
    _heddle_kind "$command" "${current%%=*}"
    _heddle_complete_value "$kind" "${current#*=}"
  elif [[ -z $arguments_only && $current == -* ]]; then
    _heddle_words "$current" $(_heddle_options "$command")
  elif [[ -z $command ]]; then
    _heddle_words "$current" $_heddle_commands
  else
    _heddle_kind "$command" argument
    _heddle_complete_value "$kind" "$current"
  fi

  [[ $COMP_WORDBREAKS == *=* ]] && cut=${current%"${current##*[=:]}"}
  for i in "${!COMPREPLY[@]}"; do
    word=$before${COMPREPLY[i]}
    COMPREPLY[i]=${word#"$cut"}
  done
}
complete -F _heddle heddle
)";

std::string kind_name(const ProgramText& program, const OptionText& option) {
  switch (option.kind) {
    case ValueKind::kPath: return "path";
    case ValueKind::kNamedFolder: return "named_folder";
    case ValueKind::kAdapter: return "adapter";
    case ValueKind::kTopic:
    case ValueKind::kChoice: {
      std::string words = "'word:";
      for (const std::string& choice : choices_of(program, option)) words += choice + " ";
      words.back() = '\'';
      return words;
    }
    case ValueKind::kOther: return "other";
    case ValueKind::kNone: break;
  }
  return "";
}

/// Cases "COMMAND OPTION" of the options with one kind of value.
std::map<std::string, std::string> patterns_by_kind(const ProgramText& program) {
  std::map<std::string, std::string> patterns;
  for (const CommandText& command : program.commands) {
    for (const OptionText& option : command.options) {
      if (option.kind == ValueKind::kNone) continue;
      std::string& cases = patterns[kind_name(program, option)];
      const auto add = [&](const std::string& name) {
        if (!cases.empty()) cases += " | ";
        cases += "'" + command.name + " " + name + "'";
      };
      for (const std::string& name : option.names) add(name);
      if (option.names.empty()) add("argument");
    }
  }
  return patterns;
}

std::string option_names(const CommandText& command) {
  std::string names;
  for (const OptionText& option : command.options) {
    for (const std::string& name : option.names) names += " " + name;
  }
  return names.empty() ? "" : names.substr(1);
}

}  // namespace

std::string bash_completion(const ProgramText& program) {
  std::string script = "# bash completion for heddle, as printed by: heddle completion bash\n\n";
  script += "_heddle_commands='";
  for (const CommandText& command : program.commands) script += command.name + " ";
  script.back() = '\'';
  script += "\n\n_heddle_options() {  # of command $1\n  case $1 in\n";
  for (const CommandText& command : program.commands) {
    script += "    " + command.name + ") echo '" + option_names(command) + "' ;;\n";
  }
  script += "    *) echo '" + option_names(program.program) + "' ;;\n  esac\n}\n\n";
  script += "# Sets kind to that of the value of option $2 of command $1; empty: it takes none.\n";
  script += "_heddle_kind() {\n  case \"$1 $2\" in\n";
  for (const auto& [kind, patterns] : patterns_by_kind(program)) {
    script += "    " + patterns + ") kind=" + kind + " ;;\n";
  }
  script += "    *) kind= ;;\n  esac\n}\n";
  return script + kBashFunctions;
}

}  // namespace heddle::app
