// The command line of heddle-bench.
#include <limits>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "heddle/config.h"

#include "bench.h"
#include "command_line.h"

namespace heddle::app {
namespace {

constexpr int kExitWrongInput = 2;

int run(int argc, char** argv) {
  CLI::App app("heddle-bench " + std::string(kVersion) +
               ": measures ops by name, or whole steps of the model (`heddle-bench model`)");
  app.set_version_flag("--version", kVersion);
  BenchOptions options;
  add_model_options(app, options.model);
  app.add_option("NAME", options.names,
                 "Regular expressions of op benches, or `model`; none: list what there is");
  app.add_option("--json", options.json_path, "Writes the raw samples to this file");
  app.add_option("--samples", options.num_samples, "Samples of each figure of the model")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--tokens", options.num_tokens,
                 "Tokens that each row of the model decodes for one")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--context", options.context,
                 "Decodes behind so many tokens in each row of the model, which is all that is "
                 "measured then")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion& request) {
    return app.exit(request);
  }
  return bench(options);
}

}  // namespace
}  // namespace heddle::app

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("heddle-bench"));
  spdlog::set_pattern("heddle-bench: %v");
  try {
    return heddle::app::run(argc, argv);
  } catch (const CLI::ParseError& error) {
    spdlog::error("{} (see heddle-bench --help)", error.what());
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
  return heddle::app::kExitWrongInput;
}
