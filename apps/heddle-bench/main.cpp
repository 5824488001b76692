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

void add_engine_bench_options(CLI::App& app, BenchOptions& options) {
  constexpr const char* kGroup = "engine";
  app.add_option("--shape", options.shape,
                 "tiny, smollm2-135m, llama-3.1-8b or qwen3-8b, or a file config.json")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--rows", options.rows, "Rows and adapters of each decode step, such as 32/8")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--rank", options.rank, "Rank of the adapters")
      ->capture_default_str()
      ->check(CLI::Range(1, 512))
      ->group(kGroup);
  app.add_option(
         "--prompt", options.prompt,
         "Tokens of a prompt; 0: none is measured; 8192, of `adapters` 64, of `prefix` what the "
         "figure has")
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  app.add_option("--beside", options.rows_beside,
                 "Rows that draw tokens beside a prompt; 0: this is not measured")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096))
      ->group(kGroup);
  app.add_option("--commit", options.commit, "What was measured, for the file")->group(kGroup);
}

void add_adapters_bench_options(CLI::App& app, BenchOptions& options) {
  constexpr const char* kGroup = "adapters";
  app.add_option("--requests", options.num_requests,
                 "Requests, all in the queue at first; 1000, of `prefix` what the figure has")
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  app.add_option("--num-adapters", options.num_adapters,
                 "Adapters that they choose from; 1000, of `prefix` 8")
      ->check(CLI::Range(1, 100000))
      ->group(kGroup);
  app.add_option("--resident", options.num_resident, "Adapters that the device has memory for")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000))
      ->group(kGroup);
  app.add_option("--batch", options.batch,
                 "Requests that run at once; 16, of `swaps` 32, of `prefix` what the figure has")
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  app.add_option("--swaps", options.num_swaps,
                 "Times that `swaps` replaces the adapter under requests that finish with the old "
                 "weights, and as often under some that switch")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}))
      ->group(kGroup);
  app.add_option("--order", options.order,
                 "zipf: adapter i is chosen with a chance of 1 / i; uniform: all alike")
      ->capture_default_str()
      ->check(CLI::IsMember({"zipf", "uniform"}))
      ->group(kGroup);
}

void add_prefix_bench_options(CLI::App& app, BenchOptions& options) {
  constexpr const char* kGroup = "prefix";
  app.add_option("--figure", options.figures,
                 "shared, chats, lookup, apart, admit, rules, formats or host (of a GPU), several "
                 "or none, which "
                 "is all")
      ->group(kGroup);
  app.add_option("--vocabulary", options.vocabulary,
                 "A GGUF file with the vocabulary of `formats`; it may have no weights")
      ->check(CLI::ExistingFile)
      ->group(kGroup);
  app.add_option("--shared", options.num_shared,
                 "Tokens of --prompt, whole pages, that all requests of `shared` begin with")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
  app.add_option("--users", options.num_users, "Users of `chats`")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  app.add_option("--turns", options.num_turns, "Turns of each of their chats")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(kGroup);
  app.add_option("--cache-tokens", options.cache_tokens, "Tokens that the cache of `admit` holds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
}

int run(int argc, char** argv) {
  CLI::App app(
      "heddle-bench " + std::string(kVersion) +
      ": measures ops by name, or whole steps of the model (`heddle-bench model`) or of one "
      "made of a seed (`heddle-bench engine`), the load of a model (`heddle-bench load`), "
      "requests over many adapters (`heddle-bench adapters`), adapters that are replaced under "
      "requests that run (`heddle-bench swaps`), or the prefix cache (`heddle-bench prefix`)");
  app.set_version_flag("--version", kVersion);
  BenchOptions options;
  add_model_options(app, options.model);
  app.add_option("NAME", options.names,
                 "Regular expressions of op benches, or `model`, `engine`, `load`, `adapters`, "
                 "`swaps` or `prefix`; none: list what there is");
  app.add_option("--json", options.json_path, "Writes the raw samples to this file");
  app.add_option("--samples", options.num_samples, "Samples of each figure of the model")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option(
         "--tokens", options.num_tokens,
         "Tokens that each row of the model decodes for one; 64, of `engine` 16, of `prefix` "
         "what the figure has")
      ->check(CLI::Range(1, 1000));
  app.add_option("--context", options.context,
                 "Decodes behind so many tokens in each row of the model, which is all that is "
                 "measured then; of `engine` 1024")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  add_engine_bench_options(app, options);
  add_adapters_bench_options(app, options);
  add_prefix_bench_options(app, options);
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
