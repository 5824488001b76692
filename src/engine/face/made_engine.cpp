#include "engine/face/made_engine.h"

#include <memory>
#include <utility>

#include "engine/face/engine_state.h"
#include "engine/options/weight_options.h"
#include "model/source/made_model.h"

namespace heddle {

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine open_engine(const EngineOptions& options, EngineHooks hooks) {
  return Engine(std::make_unique<Engine::State>(options, model::open_model(options.model_path),
                                                std::move(hooks)));
}

Engine make_engine(std::string_view config_json, uint64_t seed, const EngineOptions& options,
                   BeforeCompute hook, const std::string& vocabulary) {
  const WeightType type = load_options_of(options).weights.value_or(WeightType::kBF16);
  auto files = std::make_unique<const model::MadeModel>(config_json, seed, type, vocabulary);
  EngineOptions named = options;
  named.model_path = files->path();
  named.weights.clear();
  return Engine(std::make_unique<Engine::State>(named, std::move(files),
                                                EngineHooks{.before_compute = std::move(hook)}));
}

}  // namespace heddle
