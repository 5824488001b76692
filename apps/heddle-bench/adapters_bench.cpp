// The bench of an engine that has far more adapters than its device has memory for: all requests
// wait at first, and all adapters have been read before.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

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

constexpr int kRequests = 1000, kAdapters = 1000;
constexpr int64_t kPrompt = 64;
constexpr int kAnswer = 64;   // tokens
constexpr int kDistinct = 8;  // files; the others are links to them, each an adapter of its own
constexpr int64_t kMuch = int64_t{1} << 50;  // bytes: as many as there are
constexpr int kLookEvery = 128;              // steps, at the memory of the device

std::string name_of(int adapter) { return "a" + std::to_string(adapter); }

/// What the engine had in its memories, at most.
struct Peak {
  int64_t adapter_bytes = 0, host_adapter_bytes = 0;
  int64_t least_free = 0;  // of the device, at least
};

class AdaptersBench {
 public:
  explicit AdaptersBench(const BenchOptions& options)
      : options_(options),
        num_requests_(options.num_requests > 0 ? options.num_requests : kRequests),
        num_adapters_(options.num_adapters > 0 ? options.num_adapters : kAdapters),
        num_prompt_tokens_(options.prompt < 0 ? kPrompt : options.prompt),
        num_tokens_(options.num_tokens > 0 ? options.num_tokens : kAnswer) {
    HEDDLE_CHECK(num_prompt_tokens_ > 0, "--prompt is 0, expected at least 1");
  }

  /// An engine with memory for so many adapters, or with 0 for all, which is what the first one
  /// has; all of them are read once. Times all requests.
  double run(int num_resident) {
    const bool is_first = bytes_of_one_ == 0;
    if (num_resident == 0) num_resident = num_adapters_;
    EngineOptions engine_options = options_.model.engine;
    engine_options.adapter_dir = folder_.file("");
    engine_options.adapter_memory = is_first ? kMuch : num_resident * bytes_of_one_;
    const bool on_gpu = device_of(engine_options).type == DeviceType::kCuda;
    if (on_gpu) engine_options.adapter_host_memory = kMuch;
    engine_options.max_context = num_prompt_tokens_ + num_tokens_;
    if (options_.batch > 0) engine_options.max_batch = options_.batch;
    // What is measured is the computing of all prompts, which are the same ones in both runs, by
    // requests that are never parked.
    engine_options.prefix_cache = false;
    engine_options.admit = "longest";
    Engine engine = make_engine(config_of_shape(options_.shape), 0, engine_options);
    if (is_first) begin(engine);
    const Clock::time_point warm = Clock::now();
    for (int i = 0; i < num_adapters_; ++i) submit(engine, i, i, 1);
    static_cast<void>(finish(engine));
    const double warm_seconds = seconds_since(warm);
    if (is_first) {
      bytes_of_one_ = engine.load().adapter_bytes / num_adapters_;
      head_["adapter_bytes"] = bytes_of_one_;
    }
    const EngineStats before = engine.stats();
    const Clock::time_point start = Clock::now();
    const std::vector<int> order = order_of_requests();
    for (size_t i = 0; i < order.size(); ++i) {
      submit(engine, static_cast<int>(i), order[i], num_tokens_);
    }
    const Peak peak = finish(engine);
    const double seconds = seconds_since(start);
    add(engine, num_resident, before, peak, {seconds, warm_seconds});
    return seconds;
  }

  void compare(double there, double seconds) {
    head_["of_all_resident"] = there / seconds;
    write();
  }

 private:
  struct Seconds {
    double of_requests, of_warm_up;
  };

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  /// Which adapter each request has.
  [[nodiscard]] std::vector<int> order_of_requests() const {
    std::vector<double> chances;
    for (int i = 1; i <= num_adapters_; ++i) {
      chances.push_back(options_.order == "zipf" ? 1.0 / i : 1.0);
    }
    std::mt19937_64 rng(1);
    std::discrete_distribution<int> choose(chances.begin(), chances.end());
    std::vector<int> order;
    for (int i = 0; i < num_requests_; ++i) order.push_back(choose(rng));
    return order;
  }

  void write_adapters(const ModelInfo& model) const {
    for (int i = 0; i < num_adapters_; ++i) {
      const std::string folder = folder_.file(name_of(i));
      if (i < kDistinct) {
        write_synthetic_adapter(folder, model, options_.rank, static_cast<uint64_t>(i));
        continue;
      }
      std::filesystem::create_directory(folder);
      for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"}) {
        std::filesystem::create_hard_link(folder_.file(name_of(i % kDistinct) + file),
                                          folder + file);
      }
    }
  }

  void begin(const Engine& engine) {
    tell_engine(engine);
    write_adapters(engine.model());
    head_ = engine_record(
        "heddle-bench adapters: requests over adapters of which the device has memory for "
        "`resident` at a time; all wait at first and all adapters were read once; samples are "
        "seconds; of_all_resident is the rate of tokens over that with all of them on the device",
        engine, options_);
    head_["adapters"] = num_adapters_;
    head_["order"] = options_.order;
    head_["requests"] = num_requests_;
    head_["prompt"] = num_prompt_tokens_;
    head_["tokens"] = num_tokens_;
    head_["max_batch"] = engine.options().max_batch;
  }

  void submit(Engine& engine, int row, int adapter, int num_tokens) const {
    Request request = made_prompt(row, num_prompt_tokens_, 0, engine.model().vocab_size);
    request.max_tokens = num_tokens;
    request.adapter = name_of(adapter);
    engine.submit(request);
  }

  /// Runs all requests to their ends, none of which may fail.
  static Peak finish(Engine& engine) {
    Peak peak;
    const Device device = device_of(engine.options());
    for (int64_t num_steps = 0; engine.num_unfinished() > 0; ++num_steps) {
      for (const Event& event : engine.step()) {
        if (event.completion)
          HEDDLE_CHECK(event.completion->error.empty(), event.completion->error);
      }
      const EngineLoad load = engine.load();
      peak.adapter_bytes = std::max(peak.adapter_bytes, load.adapter_bytes);
      peak.host_adapter_bytes = std::max(peak.host_adapter_bytes, load.host_adapter_bytes);
      if (num_steps % kLookEvery != 0) continue;
      const int64_t free = available_memory(device);
      peak.least_free = peak.least_free == 0 ? free : std::min(peak.least_free, free);
    }
    return peak;
  }

  void add(const Engine& engine, int num_resident, const EngineStats& before, const Peak& peak,
           const Seconds& seconds) {
    const EngineStats& now = engine.stats();
    const int64_t num_drawn = now.generated_tokens - before.generated_tokens;
    const int64_t num_steps =
        now.prefill_steps + now.decode_steps - before.prefill_steps - before.decode_steps;
    const int64_t num_loads = now.adapter_loads - before.adapter_loads;
    const double rate = static_cast<double>(num_drawn) / seconds.of_requests;
    Json record = {
        {"resident", num_resident},
        {"tokens_per_s", rate},
        {"samples", {seconds.of_requests}},
        {"seconds_to_read_all", seconds.of_warm_up},
        {"steps", num_steps},
        {"rows_per_step", static_cast<double>(num_drawn) / static_cast<double>(num_steps)},
        {"uses", now.adapter_uses - before.adapter_uses},
        {"loads", num_loads},
        {"reads", now.adapter_reads - before.adapter_reads},
        {"evictions", now.adapter_evictions - before.adapter_evictions},
        {"bytes_moved", num_loads * bytes_of_one_},
        {"peak_adapter_bytes", peak.adapter_bytes},
        {"peak_host_adapter_bytes", peak.host_adapter_bytes},
        {"least_free_device_bytes", peak.least_free}};
    print(Figure{
        options_.order + "_" + std::to_string(num_resident) + "_resident", "tokens/s", {rate}});
    head_["records"].push_back(std::move(record));
    write();
  }

  void write() const {
    if (!options_.json_path.empty()) write_file(options_.json_path, head_.dump(1));
  }

  const BenchOptions& options_;
  int num_requests_, num_adapters_;
  int64_t num_prompt_tokens_;
  int num_tokens_;
  TemporaryFolder folder_;
  int64_t bytes_of_one_ = 0;
  Json head_;
};

}  // namespace

int bench_adapters(const BenchOptions& options) {
  AdaptersBench bench(options);
  const double there = bench.run(0);
  bench.compare(there, bench.run(options.num_resident));
  return 0;
}

}  // namespace heddle::app
