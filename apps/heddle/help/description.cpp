#include "help/description.h"

#include <algorithm>

#include "help/topics.h"

namespace heddle::app {

const CommandText* find_command(const ProgramText& program, const std::string& name) {
  const auto found = std::ranges::find(program.commands, name, &CommandText::name);
  return found == program.commands.end() ? nullptr : &*found;
}

std::vector<std::string> help_words(const ProgramText& program) {
  std::vector<std::string> words;
  for (const CommandText& command : program.commands) words.push_back(command.name);
  for (const Topic& topic : topics()) words.push_back(topic.name);
  return words;
}

}  // namespace heddle::app
