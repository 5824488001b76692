// The bench of whole model steps and of LoRA's share of them. The workload is that of
// bench/peers/workload.py.
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "bench.h"
#include "figures.h"
#include "open_model.h"
#include "synthetic_adapter.h"
#include "temporary_folder.h"
#include "workload.h"

namespace heddle::app {
namespace {

constexpr int kNumRows = 8;
constexpr int kRank = 16;
constexpr int64_t kPromptTokens = 32;
constexpr int64_t kPrefillTokens = 512;
constexpr int kDecodeTokens = 64;  // of each row for a sample

Request prompt_of(int row, int64_t num_tokens) {
  constexpr int64_t kFirstToken = 100, kNumTokens = 40000;
  return made_prompt(row, num_tokens, kFirstToken, kNumTokens);
}

class ModelBench {
 public:
  ModelBench(Engine& engine, const BenchOptions& options)
      : engine_(engine),
        num_samples_(options.num_samples),
        num_tokens_(options.num_tokens > 0 ? options.num_tokens : kDecodeTokens),
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

void write_json(const std::string& path, const std::vector<Figure>& figures, const Engine& engine,
                int64_t adapter_bytes) {
  nlohmann::ordered_json object = {
      {"model", std::filesystem::path(engine.model().path).filename().string()},
      {"threads", engine.options().num_threads},
      {"kv_type", engine.options().kv_type},
      {"speculation", engine.options().speculation.method},
      {"activations", engine.options().activations},
      {"packed_weight_bytes", engine.model().weight_bytes},
      {"adapter_bytes", adapter_bytes},
      {"results", nlohmann::ordered_json::array()}};
  for (const Figure& figure : figures) {
    object["results"].push_back(
        {{"name", figure.name}, {"unit", figure.unit}, {"samples", figure.samples}});
  }
  write_file(path, object.dump(1));
}

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
  // Samples repeat their prompts, which are to be computed each time, by all rows at once.
  model_options.engine.prefix_cache = false;
  model_options.engine.admit = "longest";
  Engine engine = open_model(model_options);
  ModelBench bench(engine, options);
  if (options.context > 0) {
    const std::string behind = "_behind_" + std::to_string(options.context);
    bench.decode("decode_1_row" + behind, 1, {});
    bench.decode("decode_8_rows" + behind, kNumRows, {});
  } else {
    measure_all(bench, engine, options);
  }
  for (const Figure& figure : bench.figures()) print(figure);
  if (!options.json_path.empty()) {
    write_json(options.json_path, bench.figures(), engine,
               kNumRows * synthetic_adapter_bytes(engine.model(), kRank));
  }
  return 0;
}

}  // namespace heddle::app
