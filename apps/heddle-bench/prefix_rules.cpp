// Decode steps in which rows need what the device alone does not do: a penalty, the most likely
// tokens, or an answer with a format.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kAdapters = 8, kDecodeTokens = 16, kWarmUpSteps = 4;
constexpr int64_t kContext = 1024;

/// What some rows of a step need besides.
struct Rules {
  const char* name;
  const char* what;
  int num_rows;       // of the batch, usually
  float temperature;  // of the step without, too
  bool first_tokens;  // are a figure of their own: they wait until the formats are compiled
  void (*add)(Request& request, int row);
};

class RulesBench {
 public:
  RulesBench(PrefixBench& bench, const Rules& rules)
      : bench_(bench),
        rules_(rules),
        num_rows_(std::max(PrefixBench::given_or(bench.options().batch, rules.num_rows), 2)),
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
    const std::string name = std::string("step_with_") + rules_.name;
    Figure plain{"step", "ms", {}}, rules{name, "ms", {}};
    // The first requests of all, since later ones find the formats compiled.
    Figure first;
    if (rules_.first_tokens) first = first_tokens();
    for (int round = -1; round < bench_.options().num_samples; ++round) {
      for (const bool has_rules : {round % 2 != 0, round % 2 == 0}) {
        const double ms = step_ms(has_rules);
        if (round >= 0) (has_rules ? rules : plain).samples.push_back(ms);
      }
    }
    const Json what = {{"op", rules_.name},
                       {"is", rules_.what},
                       {"graphs", engine_.stats().graphs},
                       {"rows", num_rows_},
                       {"adapters", num_adapters_},
                       {"context", context_},
                       {"steps_of_a_sample", num_tokens_}};
    if (rules_.first_tokens) bench_.add(first, what);
    bench_.add(plain, what);
    bench_.add(rules, what);
    bench_.add_ratio(name + "_over_without", rules.samples, plain.samples, what);
  }

 private:
  [[nodiscard]] EngineOptions options() const {
    EngineOptions options = bench_.engine_options(2 * num_rows_ * (context_ + 256));
    options.max_batch = num_rows_;
    return options;
  }

  /// Milliseconds until all rows have a token, with rules, at the first time.
  Figure first_tokens() {
    const auto begin = Clock::now();
    for (int row = 0; row < num_rows_; ++row) engine_.submit(request(row, true, 1));
    PrefixBench::run_to_end(engine_);
    return {std::string("first_tokens_with_") + rules_.name, "ms", {PrefixBench::ms_since(begin)}};
  }

  [[nodiscard]] Request request(int row, bool has_rules, int64_t max_tokens) const {
    Request request = PrefixBench::request_of(prompts_[static_cast<size_t>(row)], max_tokens);
    request.adapter = PrefixBench::adapter_name(row % num_adapters_);
    request.tell_tokens = true;
    request.sampling.temperature = rules_.temperature;
    request.sampling.seed = row;
    if (has_rules) rules_.add(request, row);
    return request;
  }

  /// Milliseconds of a step. After the first time the cache has the prompts, which are not what is
  /// timed.
  double step_ms(bool has_rules) {
    std::set<RequestId> in_prompt;
    for (int row = 0; row < num_rows_; ++row) {
      in_prompt.insert(engine_.submit(request(row, has_rules, longest_)));
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
  Rules rules_;
  int num_rows_, num_adapters_, num_tokens_;
  int64_t context_;
  Engine engine_;
  int64_t longest_;  // tokens of an answer
  std::vector<std::vector<int32_t>> prompts_;
};

/// A schema of its own for each row, of an answer that goes on longer than the figure takes.
std::string schema_of_row(int row) {
  const std::string i = std::to_string(row);
  return R"({"type": "array", "minItems": 1000, "items": {"type": "object", "additionalProperties": false,
    "required": ["id_)" +
         i + R"(", "name", "kind", "tags", "size"], "properties": {
    "id_)" +
         i + R"(": {"type": "integer", "minimum": )" + i + R"(, "maximum": 9999999},
    "name": {"type": "string", "maxLength": )" +
         std::to_string(40 + row) + R"(},
    "kind": {"enum": ["warp_)" +
         i + R"(", "weft", "heddle", "shuttle"]},
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4},
    "size": {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "object", "additionalProperties": false,
      "required": ["w", "h"], "properties": {"w": {"type": "number"}, "h": {"type": "number"}}}]}}}})";
}

}  // namespace

void measure_rules(PrefixBench& bench) {
  const auto add = [](Request& request, int row) {
    if (row == 0) request.sampling.frequency_penalty = 0.5f;
    if (row == 1) request.top_logprobs = 5;
  };
  constexpr const char* kWhat =
      "a decode step; with rules one row has frequency_penalty 0.5 and another one top_logprobs 5";
  RulesBench(bench, {"rules", kWhat, 32, 0.0f, false, add}).run();
}

void measure_formats(PrefixBench& bench) {
  const auto add = [](Request& request, int row) {
    request.ignore_end = false;
    request.format = {.kind = AnswerFormat::Kind::kJsonSchema, .source = schema_of_row(row)};
  };
  constexpr const char* kWhat =
      "a decode step of temperature 1; with formats each row has a JSON schema of its own";
  RulesBench(bench, {"formats", kWhat, 64, 1.0f, true, add}).run();
}

}  // namespace heddle::app
