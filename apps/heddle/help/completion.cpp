#include "help/completion.h"

#include "heddle/core/error.h"

namespace heddle::app {

std::string completion_script(const ProgramText& program, const std::string& shell) {
  if (shell == "bash") return bash_completion(program);
  if (shell == "zsh") return zsh_completion(program);
  HEDDLE_CHECK(shell == "fish", "completion ", shell, ": expected bash, zsh or fish");
  return fish_completion(program);
}

std::vector<std::string> choices_of(const ProgramText& program, const OptionText& option) {
  return option.kind == ValueKind::kTopic ? help_words(program) : option.choices;
}

std::string escaped(const std::string& text, const std::string& letters,
                    const std::string& escape) {
  std::string result;
  for (const char letter : text) {
    if (letters.find(letter) != std::string::npos) result += escape;
    result += letter;
  }
  return result;
}

}  // namespace heddle::app
