// The bench of the prefix cache and of what admits requests, on a model that is made of a seed.
#include "prefix_bench.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "heddle/core/error.h"

#include "engine/face/engine_options.h"
#include "engine/face/made_engine.h"
#include "engine/options/weight_options.h"
#include "engine_record.h"
#include "model/source/made_model.h"
#include "open_model.h"
#include "shapes.h"
#include "synthetic_adapter.h"
#include "temporary_folder.h"

namespace heddle::app {
namespace {

struct NamedFigure {
  const char* name;
  void (*measure)(PrefixBench&);
};

constexpr NamedFigure kFigures[] = {{"shared", measure_shared},   {"chats", measure_chats},
                                    {"lookup", measure_lookup},   {"apart", measure_apart},
                                    {"admit", measure_admit},     {"rules", measure_rules},
                                    {"formats", measure_formats}, {"host", measure_host}};

const NamedFigure* find_figure(const std::string& name) {
  const auto* const figure =
      std::ranges::find_if(kFigures, [&](const auto& each) { return name == each.name; });
  return figure == std::end(kFigures) ? nullptr : figure;
}

/// Bytes of keys and values of a token.
int64_t token_bytes(const BenchOptions& options) {
  const EngineOptions& engine = options.model.engine;
  const model::MadeModel model(config_of_shape(options.shape), 0,
                               load_options_of(engine).weights.value_or(WeightType::kBF16));
  const model::DecoderConfig& config = model.config();
  const bool on_cpu = device_of(engine).type == DeviceType::kCpu;
  const DType usual = on_cpu ? DType::kFloat32 : DType::kBFloat16;
  const DType dtype = engine.kv_type.empty() ? usual : kv_type_of(engine.kv_type);
  return KvCache::Shape{static_cast<int>(config.num_layers), static_cast<int>(config.num_kv_heads),
                        1, static_cast<int>(config.head_dim), dtype}
      .page_bytes();
}

}  // namespace

PrefixBench::PrefixBench(const BenchOptions& options)
    : options_(options),
      head_(
          {{"what",
            "heddle-bench prefix: the prefix cache and admission of an engine on a model made of "
            "a seed; each record says what it is; the prompts of a sample are new or the cache is "
            "reset before it, so that nothing is found but what the figure is of; what is "
            "compared takes turns, and sample i of a ratio is of round i"},
           {"device", {{"name", "CPU"}, {"threads", 1}}},
           {"commit", options.commit},
           {"date", today()},
           {"records", Json::array()}}) {}

EngineOptions PrefixBench::engine_options(int64_t num_tokens) const {
  EngineOptions options = options_.model.engine;
  const int64_t page_size = options.page_size;
  options.kv_memory = (num_tokens + page_size - 1) / page_size * page_size * token_bytes(options_);
  return options;
}

Engine PrefixBench::make(const EngineOptions& options, std::function<void()> before_compute) {
  BeforeCompute hook;
  if (before_compute) {
    hook = [then = std::move(before_compute)](const ExecContext& /*ctx*/) { then(); };
  }
  Engine engine = make_engine(config_of_shape(options_.shape), 0, options, std::move(hook),
                              options_.vocabulary);
  Json head = engine_record(head_["what"].get<std::string>().c_str(), engine, options_);
  head["records"] = std::move(head_["records"]);
  head.erase("prefill_chunk");  // the figures differ in it
  prefill_chunk_ = engine.options().prefill_chunk;
  head_ = std::move(head);
  return engine;
}

void PrefixBench::add_adapters(Engine& engine, int count) const {
  const TemporaryFolder folder;
  for (int i = 0; i < count; ++i) {  // of other weights each, since equal ones share keys
    const std::string path = folder.file(adapter_name(i));
    write_synthetic_adapter(path, engine.model(), options_.rank, static_cast<uint64_t>(i));
    engine.add_adapter(adapter_name(i), path);
  }
}

std::vector<int32_t> PrefixBench::tokens(int64_t vocab_size, int64_t count) {
  std::uniform_int_distribution<int32_t> choose(0, static_cast<int32_t>(vocab_size) - 1);
  std::vector<int32_t> tokens;
  std::generate_n(std::back_inserter(tokens), count, [&] { return choose(random_); });
  return tokens;
}

Request PrefixBench::request_of(std::vector<int32_t> tokens, int64_t max_tokens) {
  Request request;
  request.token_ids = std::move(tokens);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

std::vector<Event> PrefixBench::step(Engine& engine) {
  std::vector<Event> events = engine.step();
  for (const Event& event : events) {
    if (event.completion) HEDDLE_CHECK(event.completion->error.empty(), event.completion->error);
  }
  return events;
}

void PrefixBench::measure(void (*figure)(PrefixBench&)) {
  prefill_chunk_ = 0;
  figure(*this);
}

void PrefixBench::add(const Figure& figure, Json record) {
  print(figure);
  Json all = {{"figure", figure.name}, {"unit", figure.unit}, {"median", median(figure.samples)}};
  if (prefill_chunk_ > 0) all["prefill_chunk"] = prefill_chunk_;
  all.update(record);
  all["samples"] = figure.samples;
  head_["records"].push_back(std::move(all));
  if (!options_.json_path.empty()) write_file(options_.json_path, head_.dump(1));
}

void PrefixBench::add_ratio(const std::string& name, const std::vector<double>& above,
                            const std::vector<double>& below, Json record) {
  Figure figure{name, "", {}};
  std::ranges::transform(above, below, std::back_inserter(figure.samples), std::divides<>());
  add(figure, std::move(record));
}

int bench_prefix(const BenchOptions& options) {
  std::string names;
  for (const NamedFigure& figure : kFigures) names += std::string(" ") + figure.name;
  for (const std::string& name : options.figures) {
    HEDDLE_CHECK(find_figure(name) != nullptr, "--figure ", name, ": there are", names);
  }
  PrefixBench bench(options);
  for (const NamedFigure& figure : kFigures) {
    const bool is_wanted = options.figures.empty() ||
                           std::ranges::find(options.figures, figure.name) != options.figures.end();
    if (is_wanted) bench.measure(figure.measure);
  }
  return 0;
}

}  // namespace heddle::app
