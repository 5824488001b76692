#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "heddle/engine/engine.h"

#include "bench.h"
#include "figures.h"

namespace heddle::app {

/// What the figures of `heddle-bench prefix` share: engines on a model made of a seed, prompts of
/// new tokens, and the record.
class PrefixBench {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::ordered_json;

  explicit PrefixBench(const BenchOptions& options);

  [[nodiscard]] const BenchOptions& options() const { return options_; }
  /// Of --requests, --batch and the like: what was given, or what the figure has of its own.
  [[nodiscard]] static int given_or(int given, int usual) { return given > 0 ? given : usual; }
  [[nodiscard]] static double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  /// The options of the command line with a cache of `num_tokens`.
  [[nodiscard]] EngineOptions engine_options(int64_t num_tokens) const;
  /// before_compute: called before each step is launched; may be empty.
  [[nodiscard]] Engine make(const EngineOptions& options,
                            std::function<void()> before_compute = {});
  /// Adds adapters of random weights, "made-0" and so on.
  void add_adapters(Engine& engine, int count) const;
  [[nodiscard]] static std::string adapter_name(int i) { return "made-" + std::to_string(i); }

  /// Random tokens of the vocabulary: no two calls give the same.
  [[nodiscard]] std::vector<int32_t> tokens(const Engine& engine, int64_t count) {
    return tokens(engine.model().vocab_size, count);
  }
  [[nodiscard]] std::vector<int32_t> tokens(int64_t vocab_size, int64_t count);
  [[nodiscard]] std::mt19937_64& random() { return random_; }
  /// A request of these tokens that no end token ends.
  [[nodiscard]] static Request request_of(std::vector<int32_t> tokens, int64_t max_tokens);
  /// A step, in which no request may fail.
  static std::vector<Event> step(Engine& engine);
  static void run_to_end(Engine& engine) {
    while (engine.num_unfinished() > 0) (void)step(engine);
  }

  void measure(void (*figure)(PrefixBench&));
  /// Shows the figure and writes all that there is by now: a later one may fail.
  void add(const Figure& figure, Json record);
  /// Of ratios: sample i is of round i.
  void add_ratio(const std::string& name, const std::vector<double>& above,
                 const std::vector<double>& below, Json record);

 private:
  const BenchOptions& options_;
  std::mt19937_64 random_{1};
  int prefill_chunk_ = 0;  // of the engine that was made last for this figure; 0: it has none
  Json head_;
};

// The figures, each on engines of its own; docs/bench_program.md has what they are.
void measure_shared(PrefixBench& bench);
void measure_chats(PrefixBench& bench);
void measure_lookup(PrefixBench& bench);
void measure_apart(PrefixBench& bench);
void measure_admit(PrefixBench& bench);
void measure_rules(PrefixBench& bench);
void measure_formats(PrefixBench& bench);
void measure_host(PrefixBench& bench);

}  // namespace heddle::app
