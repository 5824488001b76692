// The one place where declarations of CLI11 are read and its help commands are declared.
#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "heddle/core/error.h"

#include "help/completion.h"
#include "help/description.h"
#include "help/help_commands.h"
#include "help/help_text.h"
#include "help/man_page.h"

namespace heddle::app {
namespace {

constexpr const char* kOtherGroup = "Options";  // CLI11's name for options without a group

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::string& part : CLI::detail::split(text, separator)) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

ValueKind kind_of(const OptionText& option) {
  const std::string& value = option.value;
  if (value.empty()) return ValueKind::kNone;
  if (!option.choices.empty()) return ValueKind::kChoice;
  if (value == "FILE" || value == "PATH") return ValueKind::kPath;
  if (value == "NAME=DIR") return ValueKind::kNamedFolder;
  if (value == "NAME") return ValueKind::kAdapter;
  if (value == "TOPIC") return ValueKind::kTopic;
  return ValueKind::kOther;
}

/// CLI11 gives the type with what is checked: "INT:INT in [0 - 1024]", "SHELL:{bash,zsh,fish}".
void read_type(const std::string& type, OptionText& option) {
  option.value = type.substr(0, type.find(':'));
  if (option.value == "INT" || option.value == "UINT") option.value = "N";
  if (option.value == "FLOAT") option.value = "X";
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return;
  option.choices = split(type.substr(open + 2, close - open - 2), ',');
}

OptionText describe(const CLI::Option& option) {
  OptionText result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  const bool is_flag = option.get_items_expected_max() == 0;
  if (!is_flag) read_type(option.get_type_name(), result);
  if (result.names.empty()) result.value = option.get_name(true);
  result.kind = kind_of(result);
  result.text = option.get_description();
  if (!is_flag) result.default_value = option.get_default_str();
  result.group = option.get_group();
  result.required = option.get_required();
  result.repeated = option.get_items_expected_max() > 1;
  return result;
}

CommandText describe_command(const CLI::App& app) {
  CommandText command;
  command.name = app.get_name();
  command.text = app.get_description();
  command.examples = split(app.get_footer(), '\n');
  const CLI::Option* help = app.get_help_ptr();
  std::vector<std::string> groups = app.get_groups();
  std::ranges::stable_partition(groups, [](const auto& group) { return group != kOtherGroup; });
  for (const std::string& group : groups) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group || option == help) continue;
      command.options.push_back(describe(*option));
    }
  }
  if (help != nullptr) command.options.push_back(describe(*help));
  return command;
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  HEDDLE_CHECK(std::cout.good(), "standard output: cannot write");
}

}  // namespace

ProgramText describe(const CLI::App& app) {
  ProgramText program;
  program.program = describe_command(app);
  program.program.name = "heddle";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    program.commands.push_back(describe_command(*command));
  }
  return program;
}

void add_help_commands(CLI::App& app, HelpOptions& options) {
  app.set_help_flag("-h,--help", "Shows this text");
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    command->set_help_flag("-h,--help", "Shows this text");
  }
  CLI::App* help = app.add_subcommand("help", "Explains a command or a topic");
  help->add_option("TOPIC", options.topic, "A command or a topic; without one, what there is");
  help->footer("heddle help generate\nheddle help rows");
  CLI::App* completion = app.add_subcommand("completion", "Prints a completion script for a shell");
  completion->add_option("SHELL", options.shell, "The shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("source <(heddle completion bash)\nheddle completion fish | source");
  CLI::App* man = app.add_subcommand("man", "Prints the manual page, for the program man");
  man->footer("heddle man | man -l -");
}

void print_help(const CLI::App& app) {
  const ProgramText program = describe(app);
  const std::vector<CLI::App*> called = app.get_subcommands();
  print(help_about(program, called.empty() ? "" : called.front()->get_name(), style_of_stdout()));
}

bool run_help_command(const CLI::App& app, const HelpOptions& options) {
  if (app.got_subcommand("help")) {
    print(help_about(describe(app), options.topic, style_of_stdout()));
  } else if (app.got_subcommand("completion")) {
    print(completion_script(describe(app), options.shell));
  } else if (app.got_subcommand("man")) {
    print(man_page(describe(app)));
  } else {
    return false;
  }
  return true;
}

}  // namespace heddle::app
