#include "chat/commands.h"

#include <algorithm>
#include <array>

#include "files/edit_distance.h"

namespace heddle::app {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

constexpr std::array<ChatCommand, 7> kCommands = {{
    {"/adapter", "[NAME]", "answers come from this adapter; without NAME: lists them", true},
    {"/compare", "[NAMES] PROMPT", "asks base and all adapters, or those of a,b, side by side",
     true},
    {"/system", "[TEXT]", "sets the system message, - removes it; without TEXT: shows it", false},
    {"/retry", "", "asks the last question again, in place of its answer", false},
    {"/reset", "", "forgets the conversation; adapter and system message stay", false},
    {"/help", "", "shows this list", false},
    {"/quit", "", "ends the program, as ctrl-D does", false},
}};

std::string trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

std::vector<std::string> split_names(std::string_view word) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= word.size();) {
    const size_t end = std::min(word.find(',', begin), word.size());
    names.emplace_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

std::span<const ChatCommand> chat_commands() { return kCommands; }

ChatLine parse_chat_line(const std::string& line) {
  using Kind = ChatLine::Kind;
  if (line.find_first_not_of(kBlanks) == std::string::npos) return {};
  if (line.front() != '/') return {Kind::kPrompt, "", line};
  if (line.starts_with("//")) return {Kind::kPrompt, "", line.substr(1)};
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  return {Kind::kCommand, line.substr(0, end), trim(std::string_view(line).substr(end))};
}

std::string_view nearest_command(std::string_view name) {
  constexpr size_t kNear = 2;  // slips of the finger
  std::string_view best;
  size_t least = kNear + 1;
  for (const ChatCommand& command : kCommands) {
    const bool begins_so = name.size() > 1 && command.name.starts_with(name);
    const size_t distance = begins_so ? 0 : files::edit_distance(name, command.name);
    if (distance >= least) continue;
    least = distance;
    best = command.name;
  }
  return best;
}

Comparison parse_comparison(const std::string& text, const std::vector<std::string>& known) {
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = std::string_view(text).substr(0, end);
  const std::vector<std::string> names = split_names(word);
  const bool joined = names.size() > 1 && std::ranges::find(names, "") == names.end();
  if (!joined || std::ranges::find_first_of(names, known) == names.end()) return {{}, text};
  Comparison comparison{.names = {}, .prompt = trim(std::string_view(text).substr(end))};
  for (const std::string& name : names) {  // each is asked once
    const auto& kept = comparison.names;
    if (std::ranges::find(kept, name) == kept.end()) comparison.names.push_back(name);
  }
  return comparison;
}

std::vector<std::string> complete_chat_line(std::string_view line,
                                            const std::vector<std::string>& adapters) {
  std::vector<std::string> lines;
  const size_t blank = line.find_first_of(kBlanks);
  if (blank == std::string_view::npos) {
    for (const ChatCommand& command : kCommands) {
      if (!line.empty() && command.name.starts_with(line)) lines.emplace_back(command.name);
    }
    return lines;
  }
  const auto command = std::ranges::find(kCommands, line.substr(0, blank), &ChatCommand::name);
  if (command == kCommands.end() || !command->takes_adapter) return lines;
  size_t begin = std::min(line.find_first_not_of(kBlanks, blank), line.size());
  if (command->name == "/compare") begin = std::max(begin, line.rfind(',') + 1);  // npos + 1 is 0
  for (const std::string& name : adapters) {
    if (name.starts_with(line.substr(begin))) {
      lines.push_back(std::string(line.substr(0, begin)) + name);
    }
  }
  return lines;
}

}  // namespace heddle::app
