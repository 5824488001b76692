// The bench of adapters that a trainer replaces under running requests: no answer may mix weights
// otherwise than it says, and memory stays what it is.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "bench.h"
#include "engine/face/engine_options.h"
#include "engine/face/made_engine.h"
#include "engine/options/available_memory.h"
#include "engine_record.h"
#include "figures.h"
#include "open_model.h"
#include "shapes.h"
#include "synthetic_adapter.h"
#include "temporary_folder.h"
#include "workload.h"

namespace heddle::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kRequests = 32, kAnswer = 32;
constexpr int64_t kPrompt = 64;
constexpr const char* kName = "policy";
constexpr int64_t kSlack = int64_t{64} << 20;  // bytes that memory may grow by after a tenth,
constexpr int64_t kSpare = 2;                  // and adapters that are being replaced

double ms_since(Clock::time_point begin) {
  return 1e3 * std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Of this process; on a GPU of the device as well.
struct Memory {
  int64_t resident = 0, device = 0;  // in use

  static Memory now(Device device) {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    const bool on_gpu = device.type == DeviceType::kCuda;
    return {resident * sysconf(_SC_PAGESIZE), on_gpu ? -available_memory(device) : 0};
  }
};

class SwapsBench {
 public:
  explicit SwapsBench(const BenchOptions& options)
      : options_(options),
        num_rows_(options.batch > 0 ? options.batch : kRequests),
        num_prompt_tokens_(options.prompt < 0 ? kPrompt : options.prompt),
        num_tokens_(options.num_tokens > 0 ? options.num_tokens : kAnswer),
        engine_(make_engine(config_of_shape(options.shape), 0, engine_options())) {
    tell_engine(engine_);
    for (int version : {0, 1}) {
      write_synthetic_adapter(folder_of(version), engine_.model(), options.rank,
                              static_cast<uint64_t>(version));
      (void)engine_.replace_adapter(kName, folder_of(version));
      alone_[version] = answers();
    }
    HEDDLE_CHECK(alone_[0][0].logprobs != alone_[1][0].logprobs, "the two adapters are alike");
  }

  /// Requests run all the time; as soon as an adapter is prepared, concurrently with the steps, it
  /// takes the place of the other one.
  void run(RunningRequests running) {
    running_ = running;
    std::vector<double> steps, replacements;
    for (int row = 0; row < num_rows_; ++row) submit(row);
    Memory early;
    std::future<PreparedAdapter> next = prepare();
    for (int64_t num_swaps = 0; num_swaps < options_.num_swaps;) {
      const Clock::time_point begin = Clock::now();
      take(engine_.step(), true);
      steps.push_back(ms_since(begin));
      if (next.wait_for(Clock::duration::zero()) != std::future_status::ready) continue;
      const Clock::time_point swap = Clock::now();
      version_ = 1 - version_;
      (void)engine_.replace_adapter(kName, next.get(), running);
      replacements.push_back(ms_since(swap));
      if (++num_swaps == (options_.num_swaps + 9) / 10) early = Memory::now(device());
      next = prepare();
    }
    next.wait();
    while (engine_.num_unfinished() > 0) take(engine_.step(), false);
    add(steps, replacements, early, Memory::now(device()));
  }

  void write() const {
    if (!options_.json_path.empty()) write_file(options_.json_path, head_.dump(1));
  }

 private:
  struct Running {
    int row = 0, version = 0;  // that it began with
  };

  EngineOptions engine_options() const {
    EngineOptions given = options_.model.engine;
    given.max_batch = num_rows_;
    given.max_context = num_prompt_tokens_ + num_tokens_;
    return given;
  }
  [[nodiscard]] Device device() const { return device_of(engine_.options()); }
  [[nodiscard]] std::string folder_of(int version) const {
    return folder_.file("v" + std::to_string(version));
  }
  [[nodiscard]] std::future<PreparedAdapter> prepare() const {
    return std::async(std::launch::async, [this, folder = folder_of(1 - version_)] {
      return engine_.prepare_adapter(folder);
    });
  }
  [[nodiscard]] Request request_of(int row) const {
    Request request = made_prompt(row, num_prompt_tokens_, 0, engine_.model().vocab_size);
    request.max_tokens = num_tokens_;
    request.adapter = kName;
    return request;
  }

  /// Of all rows, with the weights that the name has.
  std::vector<Completion> answers() {
    std::vector<Completion> all;
    for (int row = 0; row < num_rows_; ++row) {
      (void)engine_.submit(request_of(row));
      while (engine_.num_unfinished() > 0) {
        for (Event& event : engine_.step()) {
          if (event.completion) all.push_back(std::move(*event.completion));
        }
      }
      HEDDLE_CHECK(all.back().error.empty(), all.back().error);
    }
    return all;
  }

  void submit(int row) { running_rows_[engine_.submit(request_of(row))] = {row, version_}; }

  /// Checks the answers that have ended; `again`: their requests are submitted once more.
  void take(std::vector<Event> events, bool again) {
    for (Event& event : events) {
      if (!event.completion) continue;
      const Running of = running_rows_.extract(event.request).mapped();
      HEDDLE_CHECK(event.completion->error.empty(), event.completion->error);
      check(*event.completion, of);
      if (again) submit(of.row);
    }
  }

  /// The version whose weights an answer says that it began with: of requests that were to finish
  /// the one that the name had, of those that were to switch maybe a later one, if they waited.
  [[nodiscard]] int first_version(const Completion& got, const Running& of) const {
    if (running_ == RunningRequests::kFinish) return of.version;
    const std::string& digests =
        got.adapter_switches.empty() ? got.adapter_digest : got.earlier_digests;
    return digests.starts_with(alone_[0][0].adapter_digest) ? 0 : 1;
  }

  /// Up to its first switch an answer is, bit for bit, that of the weights that it began with.
  void check(const Completion& got, const Running& of) {
    const auto version = static_cast<size_t>(first_version(got, of));
    const Completion& want = alone_[version][static_cast<size_t>(of.row)];
    const std::vector<AdapterSwitch>& switches = got.adapter_switches;
    HEDDLE_CHECK(running_ == RunningRequests::kSwitch || switches.empty(),
                 "a request went on with other weights, although it was to finish");
    const auto num_same =
        switches.empty() ? got.token_ids.size() : static_cast<size_t>(switches.front().token);
    const bool is_same =
        got.token_ids.size() == want.token_ids.size() &&
        std::equal(got.token_ids.begin(), got.token_ids.begin() + ptrdiff_t(num_same),
                   want.token_ids.begin()) &&
        std::equal(got.logprobs.begin(), got.logprobs.begin() + ptrdiff_t(num_same),
                   want.logprobs.begin());
    ++num_answers_;
    num_switches_ += std::ssize(switches);
    num_mixed_ += is_same ? 0 : 1;
  }

  void add(const std::vector<double>& steps, const std::vector<double>& replacements,
           const Memory& early, const Memory& late) {
    const bool is_switch = running_ == RunningRequests::kSwitch;
    if (head_.is_null()) {
      head_ = engine_record(
          "heddle-bench swaps: an adapter is replaced under requests that run, each time that the "
          "next one is prepared, which is done concurrently; mixed are answers that have other "
          "bits than the weights give that they say; samples are milliseconds of a replacement",
          engine_, options_);
    }
    Json record = {
        {"running", is_switch ? "switch" : "finish"},
        {"rows", num_rows_},
        {"swaps", replacements.size()},
        {"steps", steps.size()},
        {"answers", num_answers_},
        {"switches", num_switches_},
        {"mixed", num_mixed_},
        {"step_ms", median(steps)},
        {"longest_step_ms", std::ranges::max(steps)},
        {"resident_growth_bytes", late.resident - early.resident},
        {"device_growth_bytes", late.device - early.device},
        {"median_ms", median(replacements)},
        {"samples",
         {std::ranges::min(replacements), median(replacements), std::ranges::max(replacements)}}};
    head_["records"].push_back(record);
    const std::string name = is_switch ? "swap_switch" : "swap_finish";
    print(Figure{name, "ms", replacements});
    print(Figure{name + "_step", "ms", steps});
    HEDDLE_CHECK(num_mixed_ == 0, num_mixed_, " of ", num_answers_, " answers were mixed");
    const int64_t slack = kSlack + kSpare * engine_.load().adapter_bytes;
    HEDDLE_CHECK(late.resident - early.resident < slack && late.device - early.device < slack,
                 "memory grew: ", record.dump());
    HEDDLE_CHECK(engine_.load().num_adapters == 1, "weights of requests that have ended stay");
    num_answers_ = num_switches_ = num_mixed_ = 0;
  }

  const BenchOptions& options_;
  int num_rows_;
  int64_t num_prompt_tokens_;
  int num_tokens_;
  TemporaryFolder folder_;
  Engine engine_;
  std::vector<Completion> alone_[2];  // of each version and row
  RunningRequests running_ = RunningRequests::kFinish;
  int version_ = 1;  // that the name has
  std::unordered_map<RequestId, Running> running_rows_;
  int64_t num_answers_ = 0, num_switches_ = 0, num_mixed_ = 0;
  Json head_;
};

}  // namespace

int bench_swaps(const BenchOptions& options) {
  SwapsBench bench(options);
  for (const RunningRequests running : {RunningRequests::kFinish, RunningRequests::kSwitch}) {
    bench.run(running);
    bench.write();
  }
  return 0;
}

}  // namespace heddle::app
