#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::app {

struct GenerateOptions {
  EngineOptions engine;
  std::vector<std::pair<std::string, std::string>> adapters;  // name, folder
  std::string prompts_path;                                   // empty: `prompts`
  std::vector<std::string> prompts;
  bool json = false, raw = false, logprobs = false;
  int64_t seed = 0;
  std::string stats_path;  // empty: no file
};

/// Runs all rows; returns the program's exit code: 0, or 1 when a row failed. Throws Error, before
/// anything is written, when the input is wrong.
int generate(const GenerateOptions& options);

}  // namespace heddle::app
