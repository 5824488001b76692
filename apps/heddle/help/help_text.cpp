#include "help/help_text.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "help/topics.h"
#include "request_json/nearest.h"

namespace heddle::app {
namespace {

constexpr size_t kOptionColumn = 26;
constexpr size_t kNameColumn = 16;

/// "-m, --model FILE"; an option without a short name is indented, so that long names line up.
std::string term_of(const OptionText& option) {
  if (option.names.empty()) return option.value + (option.repeated ? "..." : "");
  std::string term = option.names.front().starts_with("--") ? "    " : "";
  for (const std::string& name : option.names) {
    if (&name != &option.names.front()) term += ", ";
    term += name;
  }
  return option.value.empty() ? term : term + " " + option.value;
}

void add_options(Page& page, const std::vector<OptionText>& options) {
  std::string group;
  for (const OptionText& option : options) {
    if (option.group != group) page.heading(option.group);
    group = option.group;
    page.entry(term_of(option), text_with_default(option), kOptionColumn);
  }
}

void add_examples(Page& page, const std::vector<std::string>& examples) {
  if (examples.empty()) return;
  page.heading(examples.size() == 1 ? "Example" : "Examples");
  for (const std::string& example : examples) page.line(example);
}

std::string topic_help(const Topic& topic, Style style) {
  Page page(style);
  page.heading(topic.title);
  size_t column = 0;
  for (const Block& block : topic.blocks) {
    if (block.kind == Block::Kind::kTerm) column = std::max(column, block.term.size() + 4);
  }
  Block::Kind before = Block::Kind::kCode;
  for (const Block& block : topic.blocks) {
    if (block.kind != before || block.kind == Block::Kind::kText) page.gap();
    before = block.kind;
    switch (block.kind) {
      case Block::Kind::kText: page.paragraph(block.text); break;
      case Block::Kind::kTerm: page.entry(block.term, block.text, column); break;
      case Block::Kind::kCode: page.line(block.text); break;
    }
  }
  return page.text();
}

}  // namespace

std::string text_with_default(const OptionText& option) {
  if (option.default_value.empty()) return option.text;
  return option.text + " [default:" + kNoBreak + option.default_value + "]";
}

std::string usage(const CommandText& command) {
  std::string line = "heddle " + command.name;
  const auto is_named = [](const OptionText& option) { return !option.names.empty(); };
  if (std::ranges::count_if(command.options, is_named) > 1) line += " [OPTION...]";  // not --help
  for (const OptionText& option : command.options) {
    if (is_named(option)) continue;
    const std::string argument = option.value + (option.repeated ? "..." : "");
    line += option.required ? " " + argument : " [" + argument + "]";
  }
  return line;
}

std::string program_help(const ProgramText& program, Style style) {
  Page page(style);
  page.paragraph(program.program.text);
  page.gap();
  page.paragraph("Usage: heddle COMMAND [OPTION...]");
  page.heading("Commands (heddle help COMMAND, or heddle COMMAND --help)");
  for (const CommandText& command : program.commands) {
    page.entry(command.name, command.text, kNameColumn);
  }
  page.heading("Topics (heddle help TOPIC)");
  for (const Topic& topic : topics()) page.entry(topic.name, topic.title, kNameColumn);
  add_options(page, program.program.options);
  add_examples(page, program.program.examples);
  return page.text();
}

std::string command_help(const CommandText& command, Style style) {
  Page page(style);
  page.paragraph(command.text);
  page.gap();
  page.paragraph("Usage: " + usage(command));
  add_options(page, command.options);
  add_examples(page, command.examples);
  return page.text();
}

std::string help_about(const ProgramText& program, const std::string& word, Style style) {
  if (word.empty()) return program_help(program, style);
  if (const CommandText* command = find_command(program, word)) {
    return command_help(*command, style);
  }
  const std::vector<Topic> all = topics();
  const auto topic = std::ranges::find(all, word, &Topic::name);
  if (topic != all.end()) return topic_help(*topic, style);

  std::string known;
  const std::vector<std::string> words = help_words(program);
  for (const std::string& name : words) known += (known.empty() ? "" : ", ") + name;
  throw_error(ErrorCode::kInvalidArgument, "help ", word,
              ": no such command or topic, the nearest is ",
              nearest(word, std::vector<std::string_view>(words.begin(), words.end())),
              "; there are ", known);
}

}  // namespace heddle::app
