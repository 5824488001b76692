// The bench of whole model steps and of LoRA's share of them. The workload is that of
// bench/peers/workload.py.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "bench.h"
#include "open_model.h"
#include "synthetic_adapter.h"

namespace heddle::app {
namespace {

constexpr int kNumRows = 8;
constexpr int kRank = 16;
constexpr int64_t kPromptTokens = 32;
constexpr int64_t kPrefillTokens = 512;

struct Figure {
  std::string name, unit;
  std::vector<double> samples;
};

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "heddle-bench-XXXXXX").string();
    HEDDLE_CHECK(mkdtemp(path.data()) != nullptr, path, ": cannot make a folder");
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Made-up tokens, other ones for every row: no speed depends on which they are, and nothing stops
/// at an end token.
Request prompt_of(int row, int64_t num_tokens) {
  Request request;
  request.ignore_end = true;
  request.token_ids.emplace();
  for (int64_t i = 0; i < num_tokens; ++i) {
    request.token_ids->push_back(static_cast<int32_t>(100 + (7919 * row + 37 * i) % 40000));
  }
  return request;
}

class ModelBench {
 public:
  ModelBench(Engine& engine, const BenchOptions& options)
      : engine_(engine),
        num_samples_(options.num_samples),
        num_tokens_(options.num_tokens),
        prompt_tokens_(options.context > 0 ? options.context : kPromptTokens) {}

  /// Decode steps of `num_rows` rows; row i uses adapters[i % size], or none.
  void decode(const std::string& what, int num_rows, const std::vector<std::string>& adapters) {
    Figure speed{what, "tokens/s", {}}, step{what + "_step", "ms", {}},
        lora{what + "_lora", "ms", {}};
    for (int sample = -1; sample < num_samples_; ++sample) {
      for (int row = 0; row < num_rows; ++row) {
        Request request = prompt_of(row, prompt_tokens_);
        request.max_tokens = num_tokens_ + 1;  // the first comes with the prompt's step
        if (!adapters.empty())
          request.adapter = adapters[static_cast<size_t>(row) % adapters.size()];
        engine_.submit(request);
      }
      while (engine_.num_unfinished() > 0) {
        const EngineStats before = engine_.stats();
        (void)engine_.step();
        add(engine_.stats(), before);
      }
      const double steps = static_cast<double>(std::exchange(sum_.decode_steps, 0));
      const double seconds = std::exchange(sum_.decode_seconds, 0.0);
      const double tokens = static_cast<double>(std::exchange(sum_.decode_tokens, 0));
      const double lora_seconds = std::exchange(sum_.lora_seconds, 0.0);
      if (sample < 0) continue;  // warm-up
      speed.samples.push_back(tokens / seconds);
      step.samples.push_back(1e3 * seconds / steps);
      lora.samples.push_back(1e3 * lora_seconds / steps);
    }
    figures_.push_back(std::move(speed));
    figures_.push_back(std::move(step));
    if (!adapters.empty()) figures_.push_back(std::move(lora));
  }

  void prefill() {
    Figure speed{"prefill_512", "tokens/s", {}};
    Request request = prompt_of(0, kPrefillTokens);
    request.max_tokens = 1;
    for (int sample = -1; sample < num_samples_; ++sample) {
      const EngineStats before = engine_.stats();
      engine_.submit(request);
      while (engine_.num_unfinished() > 0) (void)engine_.step();
      const double seconds = engine_.stats().prefill_seconds - before.prefill_seconds;
      if (sample >= 0) speed.samples.push_back(static_cast<double>(kPrefillTokens) / seconds);
    }
    figures_.push_back(std::move(speed));
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  /// Counts the steps that only decode.
  void add(const EngineStats& after, const EngineStats& before) {
    if (after.decode_steps == before.decode_steps) return;
    sum_.decode_steps += 1;
    sum_.decode_seconds += after.decode_seconds - before.decode_seconds;
    sum_.decode_tokens += after.decode_tokens - before.decode_tokens;
    sum_.lora_seconds += after.lora_seconds - before.lora_seconds;
  }

  Engine& engine_;
  int num_samples_, num_tokens_;
  int64_t prompt_tokens_;
  EngineStats sum_;
  std::vector<Figure> figures_;
};

double median(std::vector<double> samples) {
  const size_t middle = samples.size() / 2;
  std::ranges::nth_element(samples, samples.begin() + static_cast<std::ptrdiff_t>(middle));
  return samples[middle];
}

void write_json(const std::string& path, const std::vector<Figure>& figures, const Engine& engine,
                int64_t adapter_bytes) {
  nlohmann::ordered_json object = {
      {"model", std::filesystem::path(engine.model().path).filename().string()},
      {"threads", engine.options().num_threads},
      {"kv_type", engine.options().kv_type},
      {"packed_weight_bytes", engine.model().weight_bytes},
      {"adapter_bytes", adapter_bytes},
      {"results", nlohmann::ordered_json::array()}};
  for (const Figure& figure : figures) {
    object["results"].push_back(
        {{"name", figure.name}, {"unit", figure.unit}, {"samples", figure.samples}});
  }
  std::ofstream file(path);
  file << object.dump(1) << "\n";
  file.close();
  HEDDLE_CHECK(file.good(), path, ": cannot write the figures");
}

}  // namespace

namespace {

void measure_all(ModelBench& bench, Engine& engine, const BenchOptions& options) {
  const TemporaryFolder folder;
  std::vector<std::string> given, synthetic;
  for (const NamedAdapter& adapter : options.model.adapters) given.push_back(adapter.name);
  for (int i = 0; i < kNumRows; ++i) {
    const std::string name = "synthetic-" + std::to_string(i);
    write_synthetic_adapter(folder.file(name), engine.model(), kRank, static_cast<uint64_t>(i));
    engine.add_adapter(name, folder.file(name));
    synthetic.push_back(name);
  }
  bench.decode("decode_1_row", 1, {});
  bench.decode("decode_8_rows", kNumRows, {});
  if (!given.empty()) bench.decode("decode_8_rows_8_adapters", kNumRows, given);
  bench.decode("decode_8_rows_8_adapters_rank_16", kNumRows, synthetic);
  bench.prefill();
}

}  // namespace

int bench_model(const BenchOptions& options) {
  ModelOptions model_options = options.model;
  model_options.engine.max_batch = kNumRows;
  Engine engine = open_model(model_options);
  tell_engine(engine);
  ModelBench bench(engine, options);
  if (options.context > 0) {
    const std::string behind = "_behind_" + std::to_string(options.context);
    bench.decode("decode_1_row" + behind, 1, {});
    bench.decode("decode_8_rows" + behind, kNumRows, {});
  } else {
    measure_all(bench, engine, options);
  }
  for (const Figure& figure : bench.figures()) {
    const auto [low, high] = std::ranges::minmax(figure.samples);
    std::cout << std::left << std::setw(40) << figure.name << std::right << std::fixed
              << std::setprecision(2) << std::setw(10) << median(figure.samples) << " " << std::left
              << std::setw(9) << figure.unit << " (" << low << " to " << high << ")\n";
  }
  if (!options.json_path.empty()) {
    write_json(options.json_path, bench.figures(), engine,
               kNumRows * synthetic_adapter_bytes(engine.model(), kRank));
  }
  return 0;
}

}  // namespace heddle::app
