#include "open_model.h"

#include <algorithm>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "default_model.h"
#include "load_progress.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

std::string names_of(const std::vector<NamedAdapter>& adapters) {
  std::string names;
  for (const NamedAdapter& adapter : adapters) names += adapter.name + ", ";
  return names + kBaseName;
}

/// Where the folder of --adapters has an adapter of the name; empty: nowhere.
std::string in_folder(const ModelInfo& model, const ModelOptions& options,
                      const std::string& name) {
  namespace fs = std::filesystem;
  if (options.engine.adapter_dir.empty()) return {};
  std::string path;
  try {
    path = find_adapter(options.engine.adapter_dir, name);
  } catch (const Error&) {  // a request for it would get the same error
    return {};
  }
  std::error_code error;
  const bool is_adapter =
      fs::is_regular_file(path, error) || fs::exists(path + "/adapter_config.json", error);
  const bool is_model = fs::equivalent(path, model.path, error);
  return is_adapter && !is_model ? path : std::string();
}

Engine load(EngineOptions options, bool quiet) {
  LoadLine line("loading");
  if (!quiet && isatty(STDERR_FILENO) != 0) {
    options.on_load = [&line, given = options.on_load](int64_t done, int64_t total) {
      if (given) given(done, total);
      line.update(done, total);
    };
  }
  return Engine(options);
}

std::string device_of(const Engine& engine) {
  const EngineOptions& options = engine.options();
  const ModelInfo& model = engine.model();
  if (model.device_name.empty()) {
    const std::string threads = options.num_threads == 1 ? " thread)" : " threads)";
    return options.device + " (" + std::to_string(options.num_threads) + threads;
  }
  return options.device + " (" + model.device_name + ", " + model.activations + " activations)";
}

/// Says what --weights did.
void tell_weights(const ModelInfo& model) {
  if (model.weights.empty()) return;
  if (model.packed_from.empty()) {
    spdlog::info("weights: nothing was packed to {}", model.weights);
  } else {
    spdlog::info("weights: {} packed to {}, relative error {:.2g}", model.packed_from,
                 model.weights, model.weight_error);
  }
  if (model.num_kept_matrices > 0) {
    spdlog::info("weights: {} matrices stay as they are, their rows are no multiple of 32",
                 model.num_kept_matrices);
  }
}

}  // namespace

void tell_engine(const Engine& engine) {
  const ModelInfo& model = engine.model();
  spdlog::info("running on {}", device_of(engine));
  const double gigabytes = 1e-9 * static_cast<double>(model.read_bytes);
  spdlog::info("weights: {:.2f} GB loaded in {:.2f} s, {:.1f} GB/s", gigabytes, model.load_seconds,
               gigabytes / std::max(model.load_seconds, 1e-9));
  tell_weights(model);
  for (const std::string& note : model.notes) spdlog::info("{}", note);
  const std::string defaults = model.generation.describe();
  if (defaults.empty()) return;
  spdlog::info("from {}, where options and requests do not set it: {}", model.generation.path,
               defaults);
}

Engine open_model(const ModelOptions& options, bool quiet,
                  const std::function<void(const Engine&)>& tell) {
  EngineOptions engine_options = options.engine;
  engine_options.strict = options.strict;
  engine_options.on_warning = [](const std::string& what) { spdlog::warn("warning: {}", what); };
  engine_options.model_path = find_model(engine_options.model_path);
  Engine engine = load(engine_options, quiet);
  std::vector<std::string> warnings;
  const auto warn = [&](std::string what) {
    HEDDLE_CHECK(!options.strict, what);
    warnings.push_back(std::move(what));
  };
  for (const std::string& key : engine.model().unread_settings) {
    warn(engine.model().settings_path + ": " + shown(key) +
         " is a setting that heddle does not know");
  }
  for (const std::string& what : engine.model().warnings) warn(what);
  const GenerationDefaults& generation = engine.model().generation;
  for (const std::string& what : generation.not_done) {
    warn(generation.path + ": " + shown(what) + ", which heddle does not support");
  }
  for (const NamedAdapter& named : options.adapters) {
    for (std::string& what : engine.add_adapter(named.name, named.folder).warnings) {
      warnings.push_back(std::move(what));
    }
  }
  tell(engine);
  for (const std::string& what : warnings) spdlog::warn("warning: {}", what);
  return engine;
}

std::vector<std::string> names_of_base(const ModelInfo& model) {
  const std::filesystem::path path = model.path;
  std::vector<std::string> names = {path.stem().string(), path.filename().string(), path.string(),
                                    model.name, kBaseName};
  std::erase(names, "");
  return names;
}

void check_adapter_names(const ModelInfo& model, const ModelOptions& options,
                         const std::vector<std::string>& base_names) {
  const std::vector<NamedAdapter>& given = options.adapters;
  for (const std::string& name : base_names) {
    const auto same = std::ranges::find(given, name, &NamedAdapter::name);
    HEDDLE_CHECK(same == given.end(), "the adapter ", quote(name), " (", same->folder,
                 ") has a name of the base model; give it another one");
    const std::string found = in_folder(model, options, name);
    HEDDLE_CHECK(found.empty(), "the adapter ", quote(name), " (", found,
                 ") has a name of the base model; rename it in ", options.engine.adapter_dir);
  }
  for (const NamedAdapter& adapter : given) {
    const std::string found = in_folder(model, options, adapter.name);
    std::error_code error;
    HEDDLE_CHECK(found.empty() || std::filesystem::equivalent(found, adapter.folder, error),
                 "two adapters are called ", quote(adapter.name), ": ", adapter.folder, " and ",
                 found, "; give one of them another name");
  }
}

std::vector<std::string> adapter_names(const ModelOptions& options) {
  std::vector<std::string> names;
  for (const NamedAdapter& adapter : options.adapters) names.push_back(adapter.name);
  if (options.engine.adapter_dir.empty()) return names;
  for (std::string& name : adapters_in(options.engine.adapter_dir)) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::string adapter_in_use(const ModelOptions& options, const std::string& use) {
  const std::vector<NamedAdapter>& adapters = options.adapters;
  if (use == kBaseName) return "";
  if (!use.empty()) {
    const bool known = std::ranges::find(adapters, use, &NamedAdapter::name) != adapters.end();
    const std::string& folder = options.engine.adapter_dir;
    if (!known && !folder.empty()) static_cast<void>(find_adapter(folder, use));
    HEDDLE_CHECK(known || !folder.empty(), "--use ", use, ": no such adapter; there are ",
                 names_of(adapters));
    return use;
  }
  HEDDLE_CHECK(adapters.size() <= 1,
               "several adapters are given; choose one with --use: ", names_of(adapters));
  return adapters.empty() ? "" : adapters.front().name;
}

}  // namespace heddle::app
