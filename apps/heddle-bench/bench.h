#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace heddle::app {

struct BenchOptions {
  ModelOptions model;              // adapters: for `model`, those of eight more rows
  std::vector<std::string> names;  // regular expressions of op benches, or "model"; none: list them
  std::string json_path;           // empty: no file
  int num_samples = 7;
  int num_tokens = 64;  // that each row decodes for a sample of `model`
  int64_t context = 0;  // tokens in front of them; 0: few, and all figures are measured
};

/// Runs benches and prints their figures; returns the program's exit code.
int bench(const BenchOptions& options);

/// Tokens per second of whole steps of the model: one row, eight rows with and without adapters, a
/// prompt of 512 tokens. With a context one row and eight rows behind so many tokens, and no more.
int bench_model(const BenchOptions& options);

}  // namespace heddle::app
