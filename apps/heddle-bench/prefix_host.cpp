// Pages that come back from host memory while rows decode: how fast, and what the steps lose by it.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "core/device_stream.h"
#include "engine/cache/pinned_pages.h"
#include "engine/face/engine_options.h"
#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kRows = 8, kControlSteps = 50;
constexpr int64_t kContext = 1024, kPrompt = 32768;
constexpr int64_t kPrompts = 4;  // that take turns; the device has room for fewer
constexpr double kGiga = 1e9;

/// GB/s of plain copies of pinned memory to a device that does nothing else.
std::vector<double> rates_of_copies(Device device, int num_samples) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const ScopedDevice on_device(device);
  const DeviceStream stream = make_stream(device);
  const ExecContext ctx{.device = device, .info = query_device(device), .stream = stream.get()};
  const PinnedPages pinned(ctx, 1, kBytes);
  HEDDLE_CHECK(pinned.num_pages() == 1, "no host memory to copy from");
  const DeviceBytes to = allocate_zeroed(device, static_cast<size_t>(kBytes));
  std::vector<double> rates;
  for (int sample = -1; sample < num_samples; ++sample) {
    const auto begin = Clock::now();
    copy_from_host(ctx, to.get(), pinned[0]);
    if (sample >= 0) rates.push_back(kBytes / PrefixBench::ms_since(begin) * 1e3 / kGiga);
  }
  return rates;
}

class HostBench {
 public:
  explicit HostBench(PrefixBench& bench)
      : bench_(bench),
        num_rows_(PrefixBench::given_or(bench.options().batch, kRows)),
        num_prompt_(bench.options().prompt > 0 ? bench.options().prompt : kPrompt),
        context_(bench.options().context > 0 ? bench.options().context : kContext),
        plain_{"plain_copy", "GB/s", rates_of_copies(device(), bench.options().num_samples)},
        engine_(bench.make(options(), [this] { on_launch(); })) {
    for (int64_t i = 0; i < kPrompts; ++i) prompts_.push_back(bench.tokens(engine_, num_prompt_));
  }

  void run() {
    const double page_bytes =
        static_cast<double>(engine_.options().kv_memory / engine_.load().num_pages);
    for (int64_t i = 0; i < kPrompts; ++i) {  // computed, and evicted by the next ones
      engine_.submit(request_of_prompt(i));
      PrefixBench::run_to_end(engine_);
    }
    for (int sample = -1; sample < bench_.options().num_samples; ++sample) {
      begin_rows();
      measure_once(sample + 1, page_bytes, sample < 0);
      for (const RequestId id : rows_) engine_.cancel(id);
      PrefixBench::run_to_end(engine_);
    }
    report();
  }

 private:
  [[nodiscard]] Device device() const { return device_of(bench_.options().model.engine); }
  [[nodiscard]] int64_t longest_answer() const { return 4 * kControlSteps + num_prompt_ / 16; }

  /// The device has room for the rows and one prompt, with a part of it twice while it is being
  /// copied; the host for all prompts.
  [[nodiscard]] EngineOptions options() const {
    const int64_t rows = num_rows_ * (context_ + longest_answer() + 256);
    EngineOptions options = bench_.engine_options(rows + num_prompt_ + num_prompt_ / 2);
    const int64_t of_device = options.kv_memory;
    options.kv_host_memory =
        bench_.engine_options((kPrompts + 1) * num_prompt_ + 2 * rows).kv_memory;
    options.kv_memory = of_device;
    options.max_batch = num_rows_ + 1;
    options.prefix_cache = true;
    return options;
  }

  [[nodiscard]] Request request_of_prompt(int64_t i) const {
    return PrefixBench::request_of(prompts_[static_cast<size_t>(i % kPrompts)], 1);
  }

  void on_launch() {
    launches_.push_back(Clock::now());
    const bool is_here = engine_.stats().host_tokens >= awaited_;
    if (is_here && awaited_ > 0 && num_launches_to_here_ == 0) {
      num_launches_to_here_ = launches_.size();
    }
  }

  /// Rows that decode from here on.
  void begin_rows() {
    rows_.clear();
    for (int i = 0; i < num_rows_; ++i) {
      Request request = PrefixBench::request_of(bench_.tokens(engine_, context_), longest_answer());
      request.tell_tokens = true;
      rows_.insert(engine_.submit(std::move(request)));
    }
    std::set<RequestId> in_prompt = rows_;
    while (!in_prompt.empty()) {
      for (const Event& event : PrefixBench::step(engine_)) in_prompt.erase(event.request);
    }
  }

  /// Milliseconds from each launch to the next.
  [[nodiscard]] double mean_step(size_t first, size_t end) const {
    const std::chrono::duration<double, std::milli> all = launches_[end - 1] - launches_[first];
    return all.count() / static_cast<double>(end - 1 - first);
  }

  void measure_once(int64_t prompt, double page_bytes, bool is_warm_up) {
    awaited_ = 0;
    launches_.clear();
    launches_.reserve(static_cast<size_t>(longest_answer()));
    for (int i = 0; i < kControlSteps; ++i) (void)PrefixBench::step(engine_);
    const size_t num_control = launches_.size();
    const int64_t page_size = engine_.options().page_size;
    const int64_t num_found = (num_prompt_ - 1) / page_size * page_size;
    num_launches_to_here_ = 0;
    awaited_ = engine_.stats().host_tokens + num_found;
    const auto begin = Clock::now();
    engine_.submit(request_of_prompt(prompt));
    while (num_launches_to_here_ == 0) {
      (void)PrefixBench::step(engine_);
      HEDDLE_CHECK(engine_.load().num_running >= num_rows_, "a row has ended or was parked");
      HEDDLE_CHECK(launches_.size() < num_control + kControlSteps * 4,
                   "the pages did not come from host memory");
    }
    if (is_warm_up) return;
    const std::chrono::duration<double> seconds = launches_[num_launches_to_here_ - 1] - begin;
    const auto num_pages = static_cast<double>(num_found / page_size);
    back_.samples.push_back(num_pages * page_bytes / seconds.count() / kGiga);
    step_.samples.push_back(mean_step(0, num_control));
    step_with_copies_.samples.push_back(mean_step(num_control - 1, num_launches_to_here_));
  }

  void report() {
    const Json what = {{"op", "host"},
                       {"rows", num_rows_},
                       {"context", context_},
                       {"prompt", num_prompt_},
                       {"control_steps", kControlSteps}};
    const auto add = [&](const Figure& figure, const char* definition) {
      Json record = what;
      record["is"] = definition;
      bench_.add(figure, std::move(record));
    };
    add(plain_, "one copy of 1 GiB of pinned memory to the device, which does nothing else");
    add(back_,
        "pages of a prompt that the device has evicted, from its submission to the launch of the "
        "first step that may read the last of them, while rows decode");
    add(step_, "a decode step of the rows, from its launch to the next, without copies");
    add(step_with_copies_, "the same while the pages come back");
    bench_.add_ratio("back_over_plain_copy", back_.samples, plain_.samples, what);
    bench_.add_ratio("step_with_copies_over_without", step_with_copies_.samples, step_.samples,
                     what);
  }

  PrefixBench& bench_;
  int num_rows_;
  int64_t num_prompt_, context_;
  std::vector<Clock::time_point> launches_;
  int64_t awaited_ = 0;  // EngineStats::host_tokens, when all pages are back; 0: none are
  size_t num_launches_to_here_ = 0;  // with the first one after that; 0: they are not
  Figure plain_;
  Engine engine_;
  std::vector<std::vector<int32_t>> prompts_;
  std::set<RequestId> rows_;
  Figure back_{"pages_come_back", "GB/s", {}}, step_{"step", "ms", {}},
      step_with_copies_{"step_with_copies", "ms", {}};
};

}  // namespace

void measure_host(PrefixBench& bench) {
  if (device_of(bench.options().model.engine).type == DeviceType::kCpu) {
    HEDDLE_CHECK(bench.options().figures.empty(), "--figure host needs a GPU");
    return;
  }
  HostBench(bench).run();
}

}  // namespace heddle::app
