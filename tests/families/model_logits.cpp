// heddle_model_logits MODEL [options] < rows.json: what a model computes, to compare with other
// implementations. The input is an array of rows {"tokens": [...], "adapter": "NAME" or null}, and
// perhaps "adapters": [{"name": "NAME", "scale": 0.5}, ...]; the output an object
//
//   {"family": "...", "traits": [...], "unread": [...], "warnings": [...], "notes": [...],
//    "rows": [{"logits": [...], "answer": [...], "same_bits_alone": true}],
//    "mutations": {TRAIT: {"logits": [[...]]} or {"error": "..."}}}
//
// with the settings that heddle does not know, what else is said of the files, the logits after the
// last token of each row, the tokens of a greedy answer, and whether a row that runs alone, in
// other chunks and pages, has the same bits throughout.
//
//   --adapter NAME=PATH  an adapter of PEFT, or of llama.cpp
//   --merge NAME=JSON    a merge of some of those as an adapter: {"adapters": as in rows,
//                        "method": "ties", "density": 0.5, "majority_sign_method": "total",
//                        "seed": 0}
//   --steps N            tokens of the answers (0)
//   --device DEVICE      cpu or cuda (cpu)
//   --kv-type TYPE       of the KV cache: f32, f16, bf16 or fp8 (that of the activations)
//   --mutate             also the logits with a mistake in each of the traits, one after another

#include <algorithm>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"
#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_merge.h"
#include "engine/adapters/row_adapters.h"
#include "engine/face/engine_options.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/model_runner.h"
#include "model/adapters/open_adapter.h"
#include "model/source/model_files.h"
#include "trait_mutations.h"

namespace heddle {
namespace {

/// A model's files with another configuration.
class MutatedModel : public model::ModelFiles {
 public:
  MutatedModel(const ModelFiles& files, const testing::TraitMutation& mutation)
      : files_(&files), config_(files.config()) {
    mutation.mutate(config_);
  }

  [[nodiscard]] const std::string& path() const override { return files_->path(); }
  [[nodiscard]] const model::DecoderConfig& config() const override { return config_; }
  [[nodiscard]] const model::WeightSource& weights() const override { return files_->weights(); }
  [[nodiscard]] model::TensorNames tensor_names() const override { return files_->tensor_names(); }
  [[nodiscard]] tokenizer::Tokenizer tokenizer() const override { return files_->tokenizer(); }

 private:
  const ModelFiles* files_;
  model::DecoderConfig config_;
};

struct Options {
  EngineOptions engine{.device = "cpu", .num_threads = 2, .kv_memory = int64_t{64} << 20};
  std::map<std::string, std::string> adapters, merges;
  int64_t steps = 0;
  bool mutate = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&]() -> std::string {
      HEDDLE_CHECK(i + 1 < argc, argument, " needs a value");
      return argv[++i];
    };
    if (argument == "--adapter" || argument == "--merge") {
      const std::string pair = value();
      auto& named = argument == "--adapter" ? options.adapters : options.merges;
      named[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
    } else if (argument == "--steps") {
      options.steps = std::stoll(value());
    } else if (argument == "--device") {
      options.engine.device = value();
    } else if (argument == "--kv-type") {
      options.engine.kv_type = value();
    } else if (argument == "--mutate") {
      options.mutate = true;
    } else {
      options.engine.model_path = argument;
    }
  }
  return options;
}

/// What a row has become: all logits that its tokens were drawn from.
struct Answer {
  std::vector<float> logits;  // [1 + steps, num_logits]
  int64_t num_logits = 0;
  std::vector<int32_t> tokens;
};

/// How rows come together in steps.
struct Batching {
  int max_batch, page_size, prefill_chunk;
};

ModelRunner::Limits limits_with(EngineOptions options, const model::ModelFiles& files,
                                const Batching& batching) {
  options.max_batch = batching.max_batch;
  options.page_size = batching.page_size;
  options.prefill_chunk = batching.prefill_chunk;
  options.max_context = files.config().context_length;
  return limits_of(options);
}

class Runner {
 public:
  Runner(const Options& options, const model::ModelFiles& files, const Batching& batching)
      : prefill_chunk_(batching.prefill_chunk),
        page_size_(batching.page_size),
        runner_(device_of(options.engine), files, limits_with(options.engine, files, batching)) {
    for (const auto& [name, folder] : options.adapters) {
      const auto adapter = model::open_adapter(folder, files.config());
      adapter->load();
      adapter->check_fits(files.config().dims());
      add(name, folder, *adapter);
    }
    for (const auto& [name, merge] : options.merges) {
      const MergeRecipe recipe = recipe_of(nlohmann::json::parse(merge));
      add(name, recipe.name(), *load_merge(recipe, files, runner_.adapters().secret()));
    }
  }

  std::vector<Answer> run(const nlohmann::json& rows, int64_t steps) {
    Sequences sequences(rows.size());
    std::vector<Answer> answers(rows.size());
    RequestId id = 0;
    for (Sequence& sequence : sequences) {
      sequence.id = id++;
      const nlohmann::json& row = rows[static_cast<size_t>(sequence.id)];
      RowAdapters& adapters = sequence.adapters;
      sequence.tokens = row.at("tokens").get<std::vector<int32_t>>();
      const int64_t prompt_tokens = std::ssize(sequence.tokens);
      sequence.request.prompt_tokens = sequence.cache.prefill_length = prompt_tokens;
      if (const nlohmann::json& name = row.at("adapter"); !name.is_null()) {
        adapters.slot = slots_.at(name);
        adapters.holds = {adapters_.at(name)};
      }
      if (row.contains("adapters")) {
        for (const nlohmann::json& entry : row.at("adapters")) {
          adapters.uses.push_back(
              {.slot = slots_.at(entry.at("name")), .scale = entry.at("scale")});
          adapters.holds.push_back(adapters_.at(entry.at("name")));
        }
        adapters.slot = adapters.uses.front().slot;
        runner_.reserve_for(adapters);
      }
      set_active_positions(adapters, sequence.tokens);
      sequence.cache.pages = *runner_.pages().reserve(pages_for(prompt_tokens + steps, page_size_));
    }
    const auto is_done = [&](const Sequence& sequence) {
      return std::ssize(answers[static_cast<size_t>(sequence.id)].tokens) == steps + 1;
    };
    while (!std::ranges::all_of(sequences, is_done)) {
      for (Sequence& sequence : sequences) sequence.is_paused = is_done(sequence);
      step(sequences, answers);
    }
    for (Answer& answer : answers) answer.tokens.pop_back();
    return answers;
  }

 private:
  void add(const std::string& name, const std::string& path, const model::Adapter& adapter) {
    const auto known = std::make_shared<KnownAdapter>();
    known->path = path;
    known->invocation = adapter.invocation_tokens();
    known->has_embedding = !adapter.embedding().is_empty();
    const AdapterIdentity identity = runner_.adapters().identify(adapter);
    known->data = runner_.adapters().prepare(adapter);
    known->data.set(identity);
    runner_.add_adapter(known->data);
    slots_[name] = *known->data.slot;
    adapters_[name] = known;
  }
  [[nodiscard]] MergeRecipe recipe_of(const nlohmann::json& given) const {
    const AdapterMerge merge{
        .method = merge_method(given.at("method").get<std::string>()),
        .density = given.at("density"),
        .majority_sign = majority_sign_method(given.value("majority_sign_method", "total")),
        .seed = given.value("seed", int64_t{0})};
    MergeRecipe recipe{.parts = {}, .rule = merge_rule(merge)};
    for (const nlohmann::json& entry : given.at("adapters")) {
      const KnownAdapter& part = *adapters_.at(entry.at("name"));
      recipe.parts.push_back({.name = entry.at("name"),
                              .path = part.path,
                              .bounds = {},
                              .content = part.data.digest,
                              .weight = entry.at("scale")});
    }
    return recipe;
  }

  void step(Sequences& sequences, std::vector<Answer>& answers) {
    StepSchedule step;
    schedule_step(step, sequences,
                  {.prefill_chunk = prefill_chunk_,
                   .recompute_above = runner_.model().config().recompute_above()});
    static_cast<void>(runner_.collect(runner_.launch(step)));
    const std::vector<float> logits = runner_.copy_logits();
    auto next = logits.begin();
    for (const RowStep& row : step.rows) {
      if (row.num_logits == 0) continue;
      const int64_t num_logits = runner_.num_logits(row.sequence->adapters.slot);
      const std::vector<float> own(next, next + num_logits);
      next += num_logits;
      Answer& answer = answers[static_cast<size_t>(row.sequence->id)];
      answer.num_logits = num_logits;
      answer.logits.insert(answer.logits.end(), own.begin(), own.end());
      const auto best = static_cast<int32_t>(std::ranges::max_element(own) - own.begin());
      answer.tokens.push_back(best);
      row.sequence->tokens.push_back(best);
    }
  }

  int64_t prefill_chunk_;
  int page_size_;
  ModelRunner runner_;
  std::map<std::string, int32_t> slots_;
  std::map<std::string, AdapterHold> adapters_;
};

Batching all_together(const nlohmann::json& rows) {
  return {.max_batch = static_cast<int>(rows.size()), .page_size = 16, .prefill_chunk = 512};
}

/// The logits of the rows with a mistake, or the error that it leads to.
nlohmann::json run_mutated(const Options& options, const model::ModelFiles& files,
                           const nlohmann::json& rows, const testing::TraitMutation& mutation) {
  try {
    const MutatedModel mutated(files, mutation);
    nlohmann::json logits = nlohmann::json::array();
    Runner runner(options, mutated, all_together(rows));
    for (const Answer& answer : runner.run(rows, 0)) logits.push_back(answer.logits);
    return {{"logits", logits}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

/// Each row among all of them, and alone.
nlohmann::json run_rows(const Options& options, const model::ModelFiles& files,
                        const nlohmann::json& rows) {
  nlohmann::json result = nlohmann::json::array();
  const std::vector<Answer> together =
      Runner(options, files, all_together(rows)).run(rows, options.steps);
  Runner alone(options, files, {.max_batch = 1, .page_size = 3, .prefill_chunk = 5});
  for (size_t i = 0; i < together.size(); ++i) {
    const Answer single = alone.run(nlohmann::json::array({rows[i]}), options.steps).front();
    const std::vector<float>& logits = together[i].logits;
    result.push_back(
        {{"logits", std::vector<float>(logits.begin(), logits.begin() + together[i].num_logits)},
         {"answer", together[i].tokens},
         {"same_bits_alone", single.logits == logits && single.tokens == together[i].tokens}});
  }
  return result;
}

nlohmann::json run(const Options& options) {
  const nlohmann::json rows = nlohmann::json::parse(std::cin);
  const auto files = model::open_model(options.engine.model_path);
  nlohmann::json result = {{"family", files->config().family},
                           {"traits", nlohmann::json::array()},
                           {"unread", files->unread_settings()},
                           {"warnings", files->warnings()},
                           {"notes", files->notes()},
                           {"rows", run_rows(options, *files, rows)},
                           {"mutations", nlohmann::json::object()}};
  for (const testing::TraitMutation& mutation : testing::trait_mutations()) {
    if (!mutation.is_set(files->config())) continue;
    result["traits"].push_back(mutation.trait);
    if (!options.mutate) continue;
    result["mutations"][mutation.trait] = run_mutated(options, *files, rows, mutation);
  }
  return result;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  try {
    std::cout << heddle::run(heddle::parse(argc, argv)).dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
