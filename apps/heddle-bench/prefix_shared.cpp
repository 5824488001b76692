// Requests that begin alike, against the least that their computing can take.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "engine/face/engine_options.h"
#include "engine/options/weight_options.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/model_runner.h"
#include "model/source/made_model.h"
#include "prefix_bench.h"
#include "shapes.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kRequests = 64;
constexpr int64_t kPrompt = 4096;
constexpr int64_t kOwners = 8;  // that a page may have on average, ModelRunner's

/// The rows of a runner, without an engine: their pages have the keys of the shared tokens, and one
/// step computes what follows. Nothing is submitted, looked up, reserved or reported meanwhile.
class ResidentRows {
 public:
  ResidentRows(const BenchOptions& options, const EngineOptions& engine,
               const std::vector<std::vector<int32_t>>& prompts, int64_t num_shared)
      : files_(config_of_shape(options.shape), 0,
               load_options_of(engine).weights.value_or(WeightType::kBF16)),
        options_(complete(engine, files_)),
        runner_(device_of(options_), files_, limits_of(options_), load_options_of(options_)),
        num_shared_(num_shared) {
    Sequence& prefix = prefix_.emplace_back();
    set(prefix, prompts.front(), num_shared);
    prefix.cache.pages = reserve(num_shared, {});
    static_cast<void>(compute(prefix_));
    for (const std::vector<int32_t>& prompt : prompts) {
      Sequence& row = rows_.emplace_back();
      set(row, prompt, std::ssize(prompt));
      row.cache.pages = reserve(std::ssize(prompt), prefix.cache.pages.ids());
    }
  }

  /// Computes the rest of all prompts in one step; the first tokens of the answers.
  std::vector<int32_t> compute_rest() {
    for (Sequence& row : rows_) row.cache.num_cached = num_shared_;
    return compute(rows_);
  }

 private:
  static EngineOptions complete(EngineOptions options, const model::ModelFiles& files) {
    options.weights.clear();  // they are made in that type
    return complete_options(std::move(options), files.config());
  }

  static void set(Sequence& sequence, const std::vector<int32_t>& tokens, int64_t count) {
    sequence.tokens.assign(tokens.begin(), tokens.begin() + count);
    sequence.request.prompt_tokens = sequence.cache.prefill_length = count;
    sequence.request.max_tokens = count + 1;
  }

  ReservedPages reserve(int64_t num_tokens, std::span<const PageId> shared) {
    std::optional<ReservedPages> pages =
        runner_.pages().reserve(pages_for(num_tokens, options_.page_size), shared);
    HEDDLE_CHECK(pages.has_value(), "the cache has too few pages");
    return std::move(*pages);
  }

  std::vector<int32_t> compute(Sequences& rows) {
    const auto is_done = [](const Sequence& row) { return row.decodes(); };
    std::vector<int32_t> drawn;
    while (!std::ranges::all_of(rows, is_done)) {
      schedule_step(step_, rows, {.prefill_chunk = options_.prefill_chunk});
      const StepHandle handle = runner_.launch(step_);
      runner_.draw(handle);
      const StepTokens tokens = runner_.collect(handle);
      drawn.assign(tokens.ids.begin(), tokens.ids.begin() + step_.num_logits);
    }
    return drawn;
  }

  model::MadeModel files_;
  EngineOptions options_;
  ModelRunner runner_;
  int64_t num_shared_;
  StepSchedule step_;
  Sequences prefix_, rows_;
};

class SharedBench {
 public:
  explicit SharedBench(PrefixBench& bench)
      : bench_(bench),
        num_requests_(PrefixBench::given_or(bench.options().num_requests, kRequests)),
        num_prompt_(bench.options().prompt > 0 ? bench.options().prompt : kPrompt),
        num_shared_(bench.options().num_shared) {
    const int64_t page_size = bench.options().model.engine.page_size;
    HEDDLE_CHECK(num_shared_ < num_prompt_ && num_shared_ % page_size == 0, "--shared is ",
                 num_shared_, ", expected a multiple of the page size ", page_size, " below ",
                 num_prompt_);
    const int64_t own = num_prompt_ - num_shared_;
    // Room for all pages, and for the lists of those that all requests share, which the longest
    // contexts bound, too.
    EngineOptions options = bench.engine_options(
        num_prompt_ + num_requests_ * (own + num_prompt_ / kOwners + 2 * page_size));
    options.max_batch = num_requests_;
    options.max_context = 2 * num_prompt_;
    // All of what is not shared is one step, also of the first request.
    options.prefill_chunk =
        static_cast<int>(std::max<int64_t>({options.prefill_chunk, num_requests_ * own, 512}));
    options.prefix_cache = true;
    engine_.emplace(bench.make(options, [this] { on_launch(); }));
    make_prompts();
    HEDDLE_CHECK(engine_->options().prefill_chunk >= num_requests_ * own, "a step prefills ",
                 engine_->options().prefill_chunk, " tokens at most, expected ",
                 num_requests_ * own);
    resident_ = std::make_unique<ResidentRows>(bench.options(), options, prompts_, num_shared_);
  }

  void run() {
    for (int round = -1; round < bench_.options().num_samples; ++round) {
      const bool is_warm_up = round < 0;
      const auto measure = [&](int which) {
        if (which == 0) run_resident(is_warm_up);
        if (which == 1) run_warm(is_warm_up);
        if (which == 2) run_cold(is_warm_up);
      };
      for (int i = 0; i < 3; ++i) measure(round % 2 == 0 ? i : 2 - i);
      HEDDLE_CHECK(drawn_ == of_resident_, "the resident rows drew other tokens");
    }
    report();
  }

 private:
  void make_prompts() {
    const std::vector<int32_t> shared = bench_.tokens(*engine_, num_shared_);
    for (int i = 0; i < num_requests_; ++i) {
      prompts_.push_back(shared);
      std::ranges::copy(bench_.tokens(*engine_, num_prompt_ - num_shared_),
                        std::back_inserter(prompts_.back()));
    }
  }

  void on_launch() {
    if (!launched_) launched_ = Clock::now();
  }

  void run_resident(bool is_warm_up) {
    const auto begin = Clock::now();
    of_resident_ = resident_->compute_rest();
    if (!is_warm_up) resident_ms_.samples.push_back(PrefixBench::ms_since(begin));
  }

  /// Milliseconds from the first submission to the last first token.
  double run_all() {
    std::vector<Request> requests;
    for (const auto& prompt : prompts_) requests.push_back(PrefixBench::request_of(prompt, 1));
    std::map<RequestId, int32_t> drawn;
    launched_.reset();
    begin_ = Clock::now();
    for (Request& request : requests) drawn[engine_->submit(std::move(request))] = -1;
    while (engine_->num_unfinished() > 0) {
      for (const Event& event : PrefixBench::step(*engine_)) {
        if (event.completion) drawn[event.request] = event.completion->token_ids.front();
      }
    }
    const double ms = PrefixBench::ms_since(begin_);
    drawn_.clear();
    for (const auto& [request, token] : drawn) drawn_.push_back(token);
    return ms;
  }

  /// Milliseconds of the shared tokens alone.
  double run_prefix() {
    engine_->reset_prefix_cache();
    const auto begin = Clock::now();
    engine_->submit(PrefixBench::request_of(
        {prompts_.front().begin(), prompts_.front().begin() + num_shared_}, 1));
    PrefixBench::run_to_end(*engine_);
    return PrefixBench::ms_since(begin);
  }

  void run_warm(bool is_warm_up) {
    const double prefix = run_prefix();
    const int64_t found = engine_->stats().cached_tokens;
    const double all = run_all();
    HEDDLE_CHECK(engine_->stats().cached_tokens - found == num_requests_ * num_shared_,
                 "the cache had ", engine_->stats().cached_tokens - found, " tokens");
    if (is_warm_up) return;
    prefix_ms_.samples.push_back(prefix);
    warm_ms_.samples.push_back(all);
    const std::chrono::duration<double, std::milli> to_launch = *launched_ - begin_;
    to_launch_ms_.samples.push_back(to_launch.count());
  }

  void run_cold(bool is_warm_up) {
    engine_->reset_prefix_cache();
    const int64_t found = engine_->stats().cached_tokens;
    const double all = run_all();
    cold_found_ = engine_->stats().cached_tokens - found;
    if (!is_warm_up) cold_ms_.samples.push_back(all);
  }

  void report() {
    const Json what = {{"op", "shared"},
                       {"requests", num_requests_},
                       {"prompt", num_prompt_},
                       {"shared", num_shared_},
                       {"step_tokens", engine_->options().prefill_chunk}};
    const auto add = [&](const Figure& figure, const char* definition) {
      Json record = what;
      record["is"] = definition;
      bench_.add(figure, std::move(record));
    };
    add(resident_ms_,
        "one step of a runner without an engine that computes the rest of all prompts, over pages "
        "with the keys of the shared tokens that all rows have: staged, launched, its tokens read");
    add(prefix_ms_, "one request of the shared tokens alone, from its submission to its token");
    add(warm_ms_,
        "all requests, with the shared tokens in the cache, from the first submission to the last "
        "first token");
    add(to_launch_ms_, "part of warm: to the launch of its first step");
    add(cold_ms_, "the same after a reset of the cache: the first request computes what all share");
    std::vector<double> least = resident_ms_.samples;
    std::ranges::transform(least, prefix_ms_.samples, least.begin(), std::plus<>());
    bench_.add_ratio("warm_over_resident", warm_ms_.samples, resident_ms_.samples, what);
    Json cold = what;
    cold["found"] = cold_found_;
    bench_.add_ratio("cold_over_prefix_and_resident", cold_ms_.samples, least, std::move(cold));
  }

  PrefixBench& bench_;
  int num_requests_;
  int64_t num_prompt_, num_shared_;
  std::optional<Engine> engine_;
  std::vector<std::vector<int32_t>> prompts_;
  std::unique_ptr<ResidentRows> resident_;
  Clock::time_point begin_;                    // of the requests
  std::optional<Clock::time_point> launched_;  // their first step
  std::vector<int32_t> drawn_, of_resident_;   // the first tokens of the answers
  int64_t cold_found_ = 0;
  Figure resident_ms_{"resident", "ms", {}}, prefix_ms_{"prefix_once", "ms", {}},
      warm_ms_{"warm", "ms", {}}, to_launch_ms_{"warm_to_launch", "ms", {}},
      cold_ms_{"cold", "ms", {}};
};

}  // namespace

void measure_shared(PrefixBench& bench) { SharedBench(bench).run(); }

}  // namespace heddle::app
