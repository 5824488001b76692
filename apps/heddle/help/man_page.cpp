#include "help/man_page.h"

#include "heddle/config.h"

#include "help/help_text.h"
#include "help/topics.h"

namespace heddle::app {
namespace {

constexpr const char* kDate = "2026-11-23";  // of the version; .TH needs one

/// Text as it is, also where troff would read a command, a hyphen or a typographic quote.
std::string plain(const std::string& text) {
  std::string result;
  if (text.starts_with('.') || text.starts_with('\'')) result = "\\&";
  for (const char letter : text) {
    switch (letter) {
      case '\\': result += "\\e"; break;
      case '-': result += "\\-"; break;
      case '\'': result += "\\(aq"; break;
      case '`': result += "\\(ga"; break;
      case '^': result += "\\(ha"; break;
      case '~': result += "\\(ti"; break;
      default: result += letter;
    }
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

/// Lines of the source of up to 80 characters: long ones are hard to read in what is installed.
std::string filled(const std::string& text) {
  std::string lines;
  for (const std::string& line : wrap_words(text, 72)) lines += plain(line) + "\n";
  return lines;
}

std::string man_entry(const std::string& marked, const std::string& text) {
  return ".TP\n" + marked + "\n" + filled(text);
}

/// Lines as they are.
std::string unfilled(const std::vector<std::string>& lines) {
  std::string text = ".nf\n";
  for (const std::string& line : lines) text += plain(line) + "\n";
  return text + ".fi\n";
}

/// Lines as they are, indented, in a paragraph of their own; nothing where there are none.
std::string code(const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  return ".PP\n.RS 4\n" + unfilled(lines) + ".RE\n";
}

std::string man_term_of(const OptionText& option) {
  std::string term;
  for (const std::string& name : option.names) term += (term.empty() ? "" : ", ") + bold(name);
  if (option.value.empty()) return term;
  const std::string value = italic(option.value) + (option.repeated && term.empty() ? "..." : "");
  return term.empty() ? value : term + " " + value;
}

std::string options_of(const CommandText& command) {
  std::string text, group;
  for (const OptionText& option : command.options) {
    if (option.group != group) text += ".PP\n" + bold(option.group) + "\n";
    group = option.group;
    text += man_entry(man_term_of(option), text_with_default(option));
  }
  return text;
}

std::string section_of(const Topic& topic) {
  std::string text = ".SH " + topic.section + "\n";
  std::vector<std::string> lines;  // of code, not written yet
  bool begins = true;
  for (const Block& block : topic.blocks) {
    if (block.kind == Block::Kind::kCode) {
      lines.push_back(block.text);
      continue;
    }
    text += code(lines);
    lines.clear();
    if (block.kind == Block::Kind::kTerm) {
      text += man_entry(bold(block.term), block.text);
    } else {
      text += (begins ? "" : ".PP\n") + filled(block.text);
    }
    begins = false;
  }
  return text + code(lines);
}

}  // namespace

std::string man_page(const ProgramText& program) {
  std::string text = ".\\\" As printed by: heddle man\n";
  text += std::string(".TH HEDDLE 1 ") + kDate + " \"heddle " + kVersion + "\" \"User Commands\"\n";
  text += ".SH NAME\nheddle \\- answers prompts with one language model and many LoRA adapters\n";
  std::vector<std::string> usages, examples;
  for (const CommandText& command : program.commands) usages.push_back(usage(command));
  text += ".SH SYNOPSIS\n" + unfilled(usages);
  text += ".SH DESCRIPTION\n" + filled(program.program.text + ".");
  text += options_of(program.program);
  text += ".SH COMMANDS\n";
  for (const CommandText& command : program.commands) {
    text += ".SS heddle " + command.name + "\n" + filled(command.text + ".") + options_of(command);
    examples.insert(examples.end(), command.examples.begin(), command.examples.end());
  }
  for (const Topic& topic : topics()) text += section_of(topic);
  return text + ".SH EXAMPLES\n" + unfilled(examples);
}

}  // namespace heddle::app
