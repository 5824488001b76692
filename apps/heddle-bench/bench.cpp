#include "bench.h"

#include <algorithm>

#include <benchmark/benchmark.h>

#include "heddle/core/error.h"

namespace heddle::app {

int bench(const BenchOptions& options) {
  for (const std::string alone : {"model", "engine", "load", "adapters", "swaps", "prefix"}) {
    if (std::ranges::find(options.names, alone) == options.names.end()) continue;
    HEDDLE_CHECK(options.names.size() == 1, "`", alone,
                 "` is measured alone, not together with op benches");
    if (alone == "load") return bench_load(options);
    if (alone == "adapters") return bench_adapters(options);
    if (alone == "swaps") return bench_swaps(options);
    if (alone == "prefix") return bench_prefix(options);
    return alone == "model" ? bench_model(options) : bench_engine(options);
  }
  std::string filter;  // google-benchmark takes one expression
  for (const std::string& name : options.names) filter += (filter.empty() ? "" : "|") + name;
  std::vector<std::string> arguments = {"heddle-bench"};
  if (options.names.empty()) {
    arguments.push_back("--benchmark_list_tests=true");
  } else {
    arguments.push_back("--benchmark_filter=" + filter);
  }
  if (!options.json_path.empty()) {
    arguments.push_back("--benchmark_out=" + options.json_path);
    arguments.push_back("--benchmark_out_format=json");
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  const size_t num_run = benchmark::RunSpecifiedBenchmarks();
  HEDDLE_CHECK(num_run > 0, "no op bench is named like ", filter, "; `heddle-bench` lists them");
  return 0;
}

}  // namespace heddle::app
