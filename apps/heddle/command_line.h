#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "chat/chat.h"
#include "demo/demo.h"
#include "help/help_commands.h"
#include "options.h"
#include "pull/pull.h"
#include "serve_options.h"

namespace heddle::app {

struct InspectOptions {
  std::string path;
  std::string base;  // the model that the adapter is loaded onto; empty: it is not loaded
};

/// The command line: the options of the subcommand that was given.
struct CommandLine {
  GenerateOptions generate;
  GenerateOptions embed;  // of texts, whose rows want numbers in place of answers
  ChatOptions chat;
  ServeOptions serve;
  BatchOptions batch;
  PullOptions pull;
  DemoOptions demo;
  InspectOptions inspect;
  HelpOptions help;
};

/// Declares all subcommands with their options. Values are stored in `line`, which must outlive
/// `app`. Help, completions and the man page are made from these declarations.
void declare_commands(CLI::App& app, CommandLine& line);

/// The arguments in the order in which CLI11 takes them, the last first. "--use=" becomes "--use"
/// and an empty value: CLI11 would take the next argument for its value.
[[nodiscard]] std::vector<std::string> in_parsing_order(std::span<const std::string> arguments);

/// The options that every subcommand with a model takes; groups "Model" and "Engine".
void add_model_options(CLI::App& command, ModelOptions& options);

/// How many rows run at once.
void add_max_batch(CLI::App& command, EngineOptions& engine);

/// The options that say how answers are made; group "Answers".
void add_answer_options(CLI::App& command, AnswerOptions& options);

}  // namespace heddle::app
