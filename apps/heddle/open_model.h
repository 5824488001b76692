#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "options.h"

namespace heddle::app {

/// Logs where the engine runs, what --weights did, and what generation_config.json gives.
void tell_engine(const Engine& engine);

/// Loads the model and its adapters. An adapter that was made for a model of another name is a
/// warning, and so is a setting of the model that heddle does not know or do; with `strict` they
/// are an Error. Not `quiet`: a terminal shows how far the load is. `tell`: called when all is
/// there, before the first warning.
[[nodiscard]] Engine open_model(const ModelOptions& options, bool quiet = false,
                                const std::function<void(const Engine&)>& tell = tell_engine);

/// The names of the adapters that are given, and of those that lie in the folder of --adapters.
[[nodiscard]] std::vector<std::string> adapter_names(const ModelOptions& options);

/// What rows may call the base model: kBaseName, and what its file, folder and settings call it.
[[nodiscard]] std::vector<std::string> names_of_base(const ModelInfo& model);

/// Throws Error where an adapter, given or in the folder of --adapters, has one of the names of the
/// base model, and where one that is given and another in the folder have the same name.
void check_adapter_names(const ModelInfo& model, const ModelOptions& options,
                         const std::vector<std::string>& base_names);

/// The adapter of prompts that do not name one: the one that `use` names, else the only one there
/// is. Empty: the base model. Throws Error with the names where there are several.
[[nodiscard]] std::string adapter_in_use(const ModelOptions& options, const std::string& use);

}  // namespace heddle::app
