#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::app {

struct BenchOptions {
  EngineOptions engine;
  std::vector<std::string> names;  // regular expressions of op benches, or "model"; none: list them
  std::string json_path;           // empty: no file
  int num_samples = 7;
  std::vector<std::pair<std::string, std::string>> adapters;  // name, folder: for `model`
};

/// Runs benches and prints their figures; returns the program's exit code.
int bench(const BenchOptions& options);

/// Tokens per second of whole steps of the model: one row, eight rows with and without adapters, a
/// prompt of 512 tokens.
int bench_model(const BenchOptions& options);

}  // namespace heddle::app
