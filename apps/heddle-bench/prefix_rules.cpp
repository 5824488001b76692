// Decode steps in which two of the rows need what the device alone does not do: a penalty, and the
// most likely tokens.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kRows = 32, kAdapters = 8, kDecodeTokens = 16, kWarmUpSteps = 4;
constexpr int64_t kContext = 1024;

class RulesBench {
 public:
  explicit RulesBench(PrefixBench& bench)
      : bench_(bench),
        num_rows_(std::max(PrefixBench::given_or(bench.options().batch, kRows), 2)),
        num_adapters_(PrefixBench::given_or(bench.options().num_adapters, kAdapters)),
        num_tokens_(PrefixBench::given_or(bench.options().num_tokens, kDecodeTokens)),
        context_(bench.options().context > 0 ? bench.options().context : kContext),
        engine_(bench.make(options())),
        // A row draws while the prompts of others are computed.
        longest_(num_rows_ * (context_ / engine_.options().prefill_chunk + 2) + kWarmUpSteps +
                 num_tokens_) {
    bench.add_adapters(engine_, num_adapters_);
    for (int i = 0; i < num_rows_; ++i) prompts_.push_back(bench.tokens(engine_, context_));
  }

  void run() {
    Figure plain{"step", "ms", {}}, rules{"step_with_rules", "ms", {}};
    for (int round = -1; round < bench_.options().num_samples; ++round) {
      for (const bool has_rules : {round % 2 != 0, round % 2 == 0}) {
        const double ms = step_ms(has_rules);
        if (round >= 0) (has_rules ? rules : plain).samples.push_back(ms);
      }
    }
    const Json what = {{"op", "rules"},
                       {"is",
                        "a decode step; with rules one row has frequency_penalty 0.5 and another "
                        "one top_logprobs 5"},
                       {"rows", num_rows_},
                       {"adapters", num_adapters_},
                       {"context", context_},
                       {"steps_of_a_sample", num_tokens_}};
    bench_.add(plain, what);
    bench_.add(rules, what);
    bench_.add_ratio("step_with_rules_over_without", rules.samples, plain.samples, what);
  }

 private:
  [[nodiscard]] EngineOptions options() const {
    EngineOptions options = bench_.engine_options(2 * num_rows_ * (context_ + 256));
    options.max_batch = num_rows_;
    return options;
  }

  /// Milliseconds of a step. After the first time the cache has the prompts, which are not what is
  /// timed.
  double step_ms(bool has_rules) {
    std::set<RequestId> in_prompt;
    for (int row = 0; row < num_rows_; ++row) {
      Request request = PrefixBench::request_of(prompts_[static_cast<size_t>(row)], longest_);
      request.adapter = PrefixBench::adapter_name(row % num_adapters_);
      request.tell_tokens = true;
      if (has_rules && row == 0) request.sampling.frequency_penalty = 0.5f;
      if (has_rules && row == 1) request.top_logprobs = 5;
      in_prompt.insert(engine_.submit(std::move(request)));
    }
    const std::set<RequestId> all = in_prompt;
    while (!in_prompt.empty()) {
      for (const Event& event : PrefixBench::step(engine_)) in_prompt.erase(event.request);
    }
    for (int i = 0; i < kWarmUpSteps; ++i) (void)PrefixBench::step(engine_);
    const auto begin = Clock::now();
    for (int i = 0; i < num_tokens_; ++i) (void)PrefixBench::step(engine_);
    const double ms = PrefixBench::ms_since(begin) / num_tokens_;
    HEDDLE_CHECK(engine_.load().num_running == num_rows_, "a row has ended or was parked");
    for (const RequestId id : all) engine_.cancel(id);
    PrefixBench::run_to_end(engine_);
    return ms;
  }

  PrefixBench& bench_;
  int num_rows_, num_adapters_, num_tokens_;
  int64_t context_;
  Engine engine_;
  int64_t longest_;  // tokens of an answer
  std::vector<std::vector<int32_t>> prompts_;
};

}  // namespace

void measure_rules(PrefixBench& bench) { RulesBench(bench).run(); }

}  // namespace heddle::app
