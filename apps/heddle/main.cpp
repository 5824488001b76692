// The command line of heddle: generate, inspect.
#include <iostream>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "heddle/config.h"
#include "heddle/core/error.h"
#include "heddle/engine/inspect.h"

#include "default_model.h"
#include "engine_arguments.h"
#include "generate.h"

namespace heddle::app {
namespace {

constexpr int kExitWrongInput = 2;

void add_generate(CLI::App& app, GenerateOptions& options, std::vector<std::string>& adapters) {
  CLI::App* command =
      app.add_subcommand("generate", "Answers prompts, each with an adapter of its own");
  add_engine_options(*command, options.engine);
  command->add_option("--adapter", adapters, "NAME=DIR: a PEFT adapter; may be given many times")
      ->allow_extra_args(false);
  CLI::Option* file =
      command->add_option("--prompts", options.prompts_path,
                          "File of one JSON object a row: prompt or messages, adapter, ...");
  CLI::Option* prompts =
      command->add_option("PROMPT", options.prompts, "Prompts for the base model");
  file->excludes(prompts);
  command->add_flag("--json", options.json, "One JSON object a row, in the order of the input");
  command->add_flag("--raw", options.raw, "Prompts are plain text, without the chat template");
  command->add_option("--max-batch", options.engine.max_batch, "Rows that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--seed", options.seed, "Row i without a seed draws with this number + i");
  command->add_flag("--logprobs", options.logprobs,
                    "With --json: the log-probability of each token");
  command->add_option("--stats", options.stats_path, "Writes times and counts to this file");
}

int run(int argc, char** argv) {
  CLI::App app("heddle " + std::string(kVersion) +
               ": one language model, many LoRA adapters in a batch");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", kVersion);
  GenerateOptions generate_options;
  std::vector<std::string> adapters;
  add_generate(app, generate_options, adapters);
  std::string inspected;
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Tells what a model file or an adapter folder holds");
  inspect_command->add_option("PATH", inspected)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion& request) {
    return app.exit(request);
  }

  HEDDLE_CHECK(!app.get_subcommands().empty(),
               "a subcommand is missing: generate or inspect (see heddle --help)");
  std::vector<std::pair<std::string, std::string>> named_adapters;
  for (const std::string& text : adapters) named_adapters.push_back(parse_adapter(text));
  if (inspect_command->parsed()) {
    inspect(std::cout, inspected);
    return 0;
  }
  HEDDLE_CHECK(!generate_options.prompts_path.empty() || !generate_options.prompts.empty(),
               "generate: no prompts; give --prompts FILE or prompts as arguments");
  generate_options.adapters = std::move(named_adapters);
  generate_options.engine.model_path = find_model(generate_options.engine.model_path);
  return generate(generate_options);
}

}  // namespace
}  // namespace heddle::app

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("heddle"));
  spdlog::set_pattern("heddle: %v");
  try {
    return heddle::app::run(argc, argv);
  } catch (const CLI::ParseError& error) {
    spdlog::error("{} (see heddle --help)", error.what());
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
  return heddle::app::kExitWrongInput;
}
