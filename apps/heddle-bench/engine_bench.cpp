// The bench of an engine on a model of a real shape whose weights are made of a seed: decode steps
// of many rows and adapters, and prompts, against the time to read as many bytes.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "heddle/core/dtype.h"
#include "heddle/core/error.h"

#include "bench.h"
#include "engine/face/engine_options.h"
#include "engine/face/made_engine.h"
#include "engine_record.h"
#include "figures.h"
#include "open_model.h"
#include "read_rate.h"
#include "shapes.h"
#include "synthetic_adapter.h"
#include "temporary_folder.h"
#include "workload.h"

namespace heddle::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kContext = 1024, kPrompt = 8192;
constexpr int kDecodeTokens = 16;  // of each row for a sample
constexpr int kWarmUpSteps = 8;
constexpr int kPrompts = 8;  // that a prompt is cut into, each with an adapter
// Far above all caches, unless the model is a small one of a test on the CPU.
constexpr int64_t kReadBytes = int64_t{2} << 30, kSmallReadBytes = int64_t{64} << 20;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// "32/8", or "32/16/16"
RowsAndAdapters read_rows(const std::string& text) {
  RowsAndAdapters rows;
  const char *at = text.data(), *end = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    const bool is_fine = error == std::errc();
    at = next;
    return is_fine;
  };
  const auto slash = [&] { return at != end && *at++ == '/'; };
  const bool is_fine = number(rows.num_rows) && slash() && number(rows.num_adapters) &&
                       (at == end || (slash() && number(rows.num_base_rows))) && at == end &&
                       rows.num_adapters >= 0 && rows.num_base_rows >= 0 && rows.num_rows >= 1 &&
                       rows.num_adapters <= rows.num_rows - rows.num_base_rows;
  HEDDLE_CHECK(
      is_fine, "--rows ", text,
      ": expected rows and no more adapters than these, such as 32/8, or also rows without "
      "an adapter among them, such as 32/16/16");
  return rows;
}

/// Bytes of matrices that a decode step reads: all, but of an embedding that is not the head.
int64_t weight_bytes_of_step(const ModelInfo& model) {
  const int64_t q = model.num_q_heads * model.head_dim, kv = model.num_kv_heads * model.head_dim;
  const int64_t layer =
      model.hidden_size * (2 * q + 2 * kv + 3 * model.intermediate_size) * model.num_layers;
  const int64_t table = model.vocab_size * model.hidden_size;
  const bool is_tied = model.num_parameters < layer + 2 * table;
  if (is_tied) return model.weight_bytes;
  const double share = static_cast<double>(layer + table) / static_cast<double>(layer + 2 * table);
  return static_cast<int64_t>(share * static_cast<double>(model.weight_bytes));
}

class EngineBench {
 public:
  EngineBench(Engine& engine, const BenchOptions& options)
      : engine_(engine),
        options_(options),
        context_(options.context > 0 ? options.context : kContext),
        num_tokens_(options.num_tokens > 0 ? options.num_tokens : kDecodeTokens) {
    head_ = engine_record(
        "heddle-bench engine: steps of a whole engine on a model made of a seed; samples are "
        "milliseconds of a step or prompt, floor_ms is the time to read the bytes of weights, "
        "keys, values and adapters at the rate of the plain reads; of one step host_ms is the "
        "host's without waiting for the device, device_ms the device's, gap_ms the time in which "
        "the device computes nothing between two steps, means over all steps",
        engine, options);
  }

  void add_adapters(int count) {
    if (count == 0) return;
    const TemporaryFolder folder;
    const std::string path = folder.file("adapter");
    write_synthetic_adapter(path, engine_.model(), options_.rank, 0);
    for (int i = 0; i < count; ++i) {  // each has memory of its own
      names_.push_back("made-" + std::to_string(i));
      engine_.add_adapter(names_.back(), path);
    }
  }

  void reads(int64_t num_bytes) {
    Figure figure{"plain_reads", "ms", {}};
    for (const double seconds :
         time_reads(device_of(engine_.options()), engine_.options().num_threads, num_bytes,
                    options_.num_samples)) {
      figure.samples.push_back(1e3 * seconds);
    }
    bytes_per_ms_ = static_cast<double>(num_bytes) / median(figure.samples);
    add(figure, {{"op", "plain_reads"}, {"bytes", num_bytes}, {"tb_per_s", bytes_per_ms_ * 1e-9}});
  }

  /// Row i uses adapter i % num_adapters; the last num_base_rows use none.
  void decode(const RowsAndAdapters& rows) {
    const auto [num_rows, num_adapters, num_base_rows] = rows;
    const int64_t num_steps = int64_t{options_.num_samples} * num_tokens_;
    const int64_t prompt = std::max<int64_t>(context_ - num_steps / 2 - kWarmUpSteps - 1, 1);
    const std::set<RequestId> all = start_rows(rows, prompt, num_steps);
    const std::string base = "_" + std::to_string(num_base_rows) + "_base_rows";
    Figure figure{"decode_" + std::to_string(num_rows) + "_rows_" + std::to_string(num_adapters) +
                      "_adapters" + (num_base_rows > 0 ? base : ""),
                  "ms",
                  {}};
    const EngineStats before = engine_.stats();
    const auto first = Clock::now();
    for (int sample = 0; sample < options_.num_samples; ++sample) {
      const auto begin = Clock::now();
      for (int i = 0; i < num_tokens_; ++i) (void)step();
      figure.samples.push_back(milliseconds_since(begin) / num_tokens_);
    }
    const StepTimes times = times_of(before, milliseconds_since(first), num_steps);
    end_rows(all);
    const int64_t context = prompt + 1 + kWarmUpSteps + num_steps / 2;  // amid the samples
    const int64_t bytes = bytes_of_step(rows, context);
    add(figure, {{"op", "decode_step"},
                 {"rows", num_rows},
                 {"adapters", num_adapters},
                 {"base_rows", num_adapters > 0 ? num_base_rows : num_rows},
                 {"context", context},
                 {"bytes", bytes},
                 {"floor_ms", static_cast<double>(bytes) / bytes_per_ms_},
                 {"host_ms", times.host},
                 {"device_ms", times.device},
                 {"gap_ms", times.gap},
                 {"tokens_per_s", 1e3 * num_rows / median(figure.samples)}});
    print_times(times);
  }

  /// A prompt that comes while rows without adapters draw tokens, and the longest time between two
  /// tokens of these meanwhile.
  void prompt_beside(int num_rows, int64_t num_tokens) {
    const int64_t steps_of_prompt = num_tokens / engine_.options().prefill_chunk + 3;
    const std::set<RequestId> all =
        start_rows({num_rows}, context_, steps_of_prompt * (options_.num_samples + 1));
    const std::string name =
        "prompt_" + std::to_string(num_tokens) + "_beside_" + std::to_string(num_rows) + "_rows";
    Figure prompt{name, "ms", {}}, longest{name + "_longest_step", "ms", {}};
    for (int sample = -1; sample < options_.num_samples; ++sample) {
      Request request = request_of(num_rows, num_tokens);
      request.max_tokens = 1;
      const auto begin = Clock::now();
      const RequestId id = engine_.submit(request);
      double most = 0;
      for (bool has_ended = false; !has_ended;) {
        const auto step_begin = Clock::now();
        for (const Event& event : step()) has_ended |= event.completion && event.request == id;
        most = std::max(most, milliseconds_since(step_begin));
      }
      if (sample < 0) continue;
      prompt.samples.push_back(milliseconds_since(begin));
      longest.samples.push_back(most);
    }
    end_rows(all);
    const Json what = {{"tokens", num_tokens}, {"rows", num_rows}, {"context", context_}};
    for (const auto& [op, figure] : {std::pair("prompt_beside_rows", &prompt),
                                     std::pair("longest_step_beside_prompt", &longest)}) {
      Json record = what;
      record["op"] = op;
      add(*figure, std::move(record));
    }
  }

  /// Prompts of num_tokens in all, each with an adapter of its own, or none with one.
  void prompts(int64_t num_tokens, int num_prompts, bool have_adapters) {
    const int64_t each = num_tokens / num_prompts;
    const std::string number = num_prompts > 1 ? std::to_string(num_prompts) + "_" : "";
    Figure figure{
        number + "prompts_" + std::to_string(each) + (have_adapters ? "_adapters" : ""), "ms", {}};
    for (int sample = -1; sample < options_.num_samples; ++sample) {
      const auto begin = Clock::now();
      for (int i = 0; i < num_prompts; ++i) {
        Request request = request_of(i, each);
        request.max_tokens = 1;
        if (have_adapters) request.adapter = names_[static_cast<size_t>(i)];
        engine_.submit(request);
      }
      while (engine_.num_unfinished() > 0) (void)step();
      if (sample >= 0) figure.samples.push_back(milliseconds_since(begin));
    }
    const int64_t all = each * num_prompts;
    add(figure, {{"op", "prompt"},
                 {"tokens", all},
                 {"prompts", num_prompts},
                 {"adapters", have_adapters ? num_prompts : 0},
                 {"tokens_per_s", 1e3 * static_cast<double>(all) / median(figure.samples)}});
  }

 private:
  /// Rows that have drawn the first of more than num_steps tokens and run warm.
  std::set<RequestId> start_rows(const RowsAndAdapters& rows, int64_t prompt, int64_t num_steps) {
    const auto [num_rows, num_adapters, num_base_rows] = rows;
    std::set<RequestId> in_prompt;
    for (int row = 0; row < num_rows; ++row) {
      Request request = request_of(row, prompt);
      request.max_tokens = num_steps + kWarmUpSteps + 2;
      request.tell_tokens = true;
      if (num_adapters > 0 && row < num_rows - num_base_rows) {
        request.adapter = names_[static_cast<size_t>(row % num_adapters)];
      }
      in_prompt.insert(engine_.submit(request));
    }
    const std::set<RequestId> all = in_prompt;
    while (!in_prompt.empty()) {  // a row that has its first token waits for the others
      for (const Event& event : step()) {
        engine_.set_paused(event.request, true);
        in_prompt.erase(event.request);
      }
    }
    for (const RequestId id : all) engine_.set_paused(id, false);
    for (int i = 0; i < kWarmUpSteps; ++i) (void)step();
    return all;
  }
  void end_rows(const std::set<RequestId>& rows) {
    for (const RequestId id : rows) engine_.cancel(id);
    while (engine_.num_unfinished() > 0) (void)engine_.step();
  }

  [[nodiscard]] Request request_of(int row, int64_t num_tokens) const {
    return made_prompt(row, num_tokens, 0, engine_.model().vocab_size);
  }

  /// Milliseconds of the steps since `before`, each: of the host, without waiting for the device;
  /// on a GPU of the device, and with nothing to compute between two steps.
  struct StepTimes {
    double host = 0, device = 0, gap = 0;
  };
  [[nodiscard]] StepTimes times_of(const EngineStats& before, double all_ms, int64_t steps) const {
    const EngineStats& now = engine_.stats();
    const auto each = [&](double begin, double end) {
      return 1e3 * (end - begin) / static_cast<double>(steps);
    };
    const double wait = each(before.wait_seconds, now.wait_seconds);
    return {.host = all_ms / static_cast<double>(steps) - wait,
            .device = each(before.device_seconds, now.device_seconds),
            .gap = each(before.device_gap_seconds, now.device_gap_seconds)};
  }

  static void print_times(const StepTimes& times) {
    std::printf("  a step: host %.3f ms, device %.3f, gap %.4f\n", times.host, times.device,
                times.gap);
  }

  /// A step, in which no row may fail.
  std::vector<Event> step() {
    std::vector<Event> events = engine_.step();
    for (const Event& event : events) {
      if (event.completion) HEDDLE_CHECK(event.completion->error.empty(), event.completion->error);
    }
    return events;
  }

  [[nodiscard]] int64_t bytes_of_step(const RowsAndAdapters& rows, int64_t context) const {
    const ModelInfo& model = engine_.model();
    const EngineOptions& options = engine_.options();
    const int64_t page_bytes = options.kv_memory / engine_.load().num_pages;
    const int64_t kv = page_bytes / options.page_size * context;
    return weight_bytes_of_step(model) + rows.num_rows * kv +
           rows.num_adapters * synthetic_adapter_bytes(model, options_.rank);
  }

  /// Shows it, and writes all that there is by now: a later figure may fail.
  void add(const Figure& figure, Json record) {
    print(figure);
    record["ms"] = median(figure.samples);
    record["samples"] = figure.samples;
    head_["records"].push_back(std::move(record));
    if (!options_.json_path.empty()) write_file(options_.json_path, head_.dump(1));
  }

  Engine& engine_;
  const BenchOptions& options_;
  int64_t context_;
  int num_tokens_;
  double bytes_per_ms_ = 0;
  std::vector<std::string> names_;
  Json head_;
};

}  // namespace

int bench_engine(const BenchOptions& options) {
  const std::string& method = options.model.engine.speculation.method;
  HEDDLE_CHECK(method.empty() || method == "off", "--speculate ", method,
               ": steps of `engine` draw one token of each row; `model` takes it");
  std::vector<RowsAndAdapters> all;
  const int64_t num_prompt_tokens = options.prompt < 0 ? kPrompt : options.prompt;
  const int num_prompts = num_prompt_tokens > 0 ? kPrompts : 0;
  int most_rows = std::max(num_prompts, options.rows_beside + 1), most_adapters = num_prompts;
  for (const std::string& text : options.rows) {
    all.push_back(read_rows(text));
    most_rows = std::max(most_rows, all.back().num_rows);
    most_adapters = std::max(most_adapters, all.back().num_adapters);
  }
  EngineOptions engine_options = options.model.engine;
  engine_options.max_batch = most_rows;
  // Samples repeat their prompts, which are to be computed each time; and rows that are paused
  // until the others have their first tokens must not be parked.
  engine_options.prefix_cache = false;
  engine_options.admit = "longest";
  Engine engine = make_engine(config_of_shape(options.shape), 0, engine_options);
  tell_engine(engine);
  EngineBench bench(engine, options);
  bench.add_adapters(most_adapters);
  const bool is_small =
      engine.model().device_name.empty() && engine.model().weight_bytes < kSmallReadBytes;
  bench.reads(is_small ? kSmallReadBytes : kReadBytes);
  for (const RowsAndAdapters& rows : all) bench.decode(rows);
  if (num_prompts == 0) return 0;
  for (const int prompts : {1, num_prompts}) {
    for (const bool have_adapters : {false, true}) {
      bench.prompts(num_prompt_tokens, prompts, have_adapters);
    }
  }
  if (options.rows_beside > 0) bench.prompt_beside(options.rows_beside, num_prompt_tokens);
  return 0;
}

}  // namespace heddle::app
