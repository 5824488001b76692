#include "open_model.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "default_model.h"
#include "shown.h"

namespace heddle::app {
namespace {

std::string names_of(const std::vector<NamedAdapter>& adapters) {
  std::string names;
  for (const NamedAdapter& adapter : adapters) names += adapter.name + ", ";
  return names + kBaseName;
}

}  // namespace

Engine open_model(const ModelOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.model_path = find_model(engine_options.model_path);
  Engine engine(engine_options);
  for (const std::string& key : engine.model().unread_settings) {
    const std::string what = engine.model().path + "/config.json: " + shown(key) +
                             " is a setting that heddle does not know";
    HEDDLE_CHECK(!options.strict, what);
    spdlog::warn("warning: {}", what);
  }
  for (const NamedAdapter& named : options.adapters) {
    const AdapterInfo adapter = engine.add_adapter(named.name, named.folder);
    if (adapter.names_this_model) continue;
    const std::string what = "adapter " + adapter.name + " (" + adapter.folder + ") was made for " +
                             shown(adapter.base_model) + ", the model is " +
                             shown(engine.model().name) + " (" + engine.model().path + ")";
    HEDDLE_CHECK(!options.strict, what);
    spdlog::warn("warning: {}", what);
  }
  return engine;
}

std::string adapter_in_use(const ModelOptions& options, const std::string& use) {
  const std::vector<NamedAdapter>& adapters = options.adapters;
  if (use == kBaseName) return "";
  if (!use.empty()) {
    const bool known = std::ranges::find(adapters, use, &NamedAdapter::name) != adapters.end();
    HEDDLE_CHECK(known, "--use ", use, ": no such adapter; there are ", names_of(adapters));
    return use;
  }
  HEDDLE_CHECK(adapters.size() <= 1,
               "several adapters are given, choose one with --use: ", names_of(adapters));
  return adapters.empty() ? "" : adapters.front().name;
}

}  // namespace heddle::app
