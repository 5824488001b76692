// Requests that may become far longer than they do: admitted now, or for their longest answer.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kRequests = 512, kAnswer = 200;
constexpr int64_t kMaxTokens = 4096;                     // of an answer, as requested
constexpr int64_t kShortPrompt = 64, kLongPrompt = 128;  // tokens

/// One engine, and what it did in each sample.
struct Side {
  std::string admit;
  Engine engine;
  Figure rate;
  std::vector<double> rows_per_step{};
  std::vector<int64_t> steps{}, parkings{}, prompt_tokens_computed{};
};

class AdmitBench {
 public:
  explicit AdmitBench(PrefixBench& bench)
      : bench_(bench),
        num_requests_(PrefixBench::given_or(bench.options().num_requests, kRequests)),
        batch_(PrefixBench::given_or(bench.options().batch, num_requests_)),
        answer_(PrefixBench::given_or(bench.options().num_tokens, kAnswer)) {
    for (const char* admit : {"now", "longest"}) {
      EngineOptions options = bench.engine_options(bench.options().cache_tokens);
      options.max_batch = batch_;
      options.admit = admit;
      sides_.push_back(
          {admit, bench.make(options), {std::string("admit_") + admit, "tokens/s", {}}});
    }
  }

  void run() {
    for (int round = -1; round < bench_.options().num_samples; ++round) {
      const std::vector<Request> requests = make_requests();
      for (size_t i = 0; i < sides_.size(); ++i) {
        run(sides_[round % 2 == 0 ? i : 1 - i], requests, round < 0);
      }
    }
    for (const Side& side : sides_) bench_.add(side.rate, record_of(side));
    bench_.add_ratio("admit_now_over_longest", sides_[0].rate.samples, sides_[1].rate.samples,
                     {{"op", "admit"}});
  }

 private:
  std::vector<Request> make_requests() {
    std::uniform_int_distribution<int64_t> length(kShortPrompt, kLongPrompt);
    std::vector<Request> requests;
    for (int i = 0; i < num_requests_; ++i) {
      const Engine& engine = sides_.front().engine;
      requests.push_back(
          PrefixBench::request_of(bench_.tokens(engine, length(bench_.random())), kMaxTokens));
      requests.back().tell_tokens = true;
    }
    return requests;
  }

  /// A request ends when an event has told its last token: it is cancelled before the next step,
  /// where it gives up its place and pages at the same moment as by an end token. (Which tokens a
  /// made model draws cannot be known before.)
  void run(Side& side, const std::vector<Request>& requests, bool is_warm_up) const {
    Engine& engine = side.engine;
    std::map<RequestId, int64_t> num_told;
    const EngineStats before = engine.stats();
    const auto begin = Clock::now();
    for (const Request& request : requests) num_told[engine.submit(request)] = 0;
    while (engine.num_unfinished() > 0) {
      for (const Event& event : PrefixBench::step(engine)) {
        int64_t& told = num_told[event.request];
        told += std::ssize(event.tokens.ids);
        if (told >= answer_) engine.cancel(event.request);
      }
    }
    const double seconds = 1e-3 * PrefixBench::ms_since(begin);
    for (const auto& [request, told] : num_told) {
      HEDDLE_CHECK(told == answer_, "a request has drawn ", told, " tokens");
    }
    if (is_warm_up) return;
    const EngineStats& now = engine.stats();
    const int64_t steps =
        now.prefill_steps + now.decode_steps - before.prefill_steps - before.decode_steps;
    const int64_t drawn = now.generated_tokens - before.generated_tokens;
    side.rate.samples.push_back(static_cast<double>(num_requests_ * answer_) / seconds);
    side.rows_per_step.push_back(static_cast<double>(drawn) / static_cast<double>(steps));
    side.steps.push_back(steps);
    side.parkings.push_back(now.parkings - before.parkings);
    side.prompt_tokens_computed.push_back(now.prefill_tokens - before.prefill_tokens);
  }

  [[nodiscard]] Json record_of(const Side& side) const {
    return {{"op", "admit"},
            {"is",
             "tokens of answers a second, from the first submission to the last end; a request "
             "asks for max_tokens and is ended after answer tokens, as an end token would"},
            {"admit", side.admit},
            {"requests", num_requests_},
            {"max_batch", batch_},
            {"max_tokens", kMaxTokens},
            {"answer", answer_},
            {"shortest_prompt", kShortPrompt},
            {"longest_prompt", kLongPrompt},
            {"cache_pages", side.engine.load().num_pages},
            {"steps", side.steps},
            {"rows_per_step", side.rows_per_step},
            {"parkings", side.parkings},
            {"prompt_tokens_computed", side.prompt_tokens_computed}};
  }

  PrefixBench& bench_;
  int num_requests_, batch_;
  int64_t answer_;
  std::vector<Side> sides_;
};

}  // namespace

void measure_admit(PrefixBench& bench) { AdmitBench(bench).run(); }

}  // namespace heddle::app
