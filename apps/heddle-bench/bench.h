#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace heddle::app {

struct BenchOptions {
  ModelOptions model;  // adapters: for `model`, those of eight more rows
  /// Regular expressions of op benches, or "model", "engine", "load", "adapters", "swaps" or
  /// "prefix"; none: list them.
  std::vector<std::string> names;
  std::string json_path;  // empty: no file
  int num_samples = 7;
  int num_tokens = 0;   // that each row decodes for a sample; 0: 64 of `model`, 16 of `engine`
  int64_t context = 0;  // tokens before them; 0: of `model` few, and all figures are measured,
                        // of `engine` 1024
  // Of `engine`, `adapters`, `swaps` and `prefix`:
  std::string shape = "llama-3.1-8b";  // or a file config.json
  std::vector<std::string> rows = {"1/1",   "8/8",    "32/0",  "32/8",    "32/32",
                                   "64/64", "128/64", "32/16", "32/16/16"};
  int rank = 16;  // of the adapters
  /// Tokens, in one prompt and in eight; 0: none is measured; -1: 8192. Of `adapters` and `prefix`
  /// in each prompt; -1: what prefix_bench.h has for its figures, of `adapters` 64.
  int64_t prompt = -1;
  int rows_beside = 0;  // that draw tokens while a prompt comes; 0: this is not measured
  std::string commit;   // for the file
  // Of `adapters` and `prefix`, whose figures have numbers of their own for 0:
  int num_requests = 0, num_adapters = 0;  // of `adapters` 1000 each
  int batch = 0;  // requests that run at once; of `adapters` 16, of `swaps` 32
  // Of `adapters`:
  int num_resident = 32;
  std::string order = "zipf";  // or "uniform": how they choose their adapters
  int64_t num_swaps = 500;     // of `swaps`, in either mode
  // Of `prefix`:
  std::vector<std::string> figures;  // none: all
  int64_t num_shared = 3968;         // tokens of a prompt that all requests of `shared` begin with
  int num_users = 32, num_turns = 10;
  int64_t cache_tokens = 100'000;  // that the cache of `admit` holds
  std::string vocabulary;          // a GGUF file, whose tokens have the texts of `formats`
};

/// Rows of a decode step, and how many adapters they use by turns; so many rows use none.
struct RowsAndAdapters {
  int num_rows = 0, num_adapters = 0, num_base_rows = 0;
};

/// Runs benches and prints their figures; returns the program's exit code.
int bench(const BenchOptions& options);

/// Tokens per second of whole steps of the model: one row, eight rows with and without adapters, a
/// prompt of 512 tokens. With a context one row and eight rows after so many tokens, and no more.
int bench_model(const BenchOptions& options);

/// Decode steps and prompts of an engine on a model that is made of a seed, with the shape of a
/// real one.
int bench_engine(const BenchOptions& options);

/// Requests over more adapters than the device has memory for, against the same with all of them
/// there, on such a model.
int bench_adapters(const BenchOptions& options);

/// An adapter that is replaced again and again under requests that run, on such a model.
int bench_swaps(const BenchOptions& options);

/// The prefix cache and admission of an engine on such a model.
int bench_prefix(const BenchOptions& options);

/// How fast a model's files come to the device, against plain copies of them.
int bench_load(const BenchOptions& options);

}  // namespace heddle::app
