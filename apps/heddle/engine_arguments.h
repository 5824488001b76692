#pragma once

#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "heddle/core/error.h"
#include "heddle/engine/engine.h"

namespace heddle::app {

// What the programs' command lines share. Inline, since CLI11 takes seconds to compile in every source that includes it: each program
// has one.

inline void add_engine_options(CLI::App& command, EngineOptions& engine) {
  command.add_option("--model", engine.model_path,
                     "GGUF file; without it $HEDDLE_MODEL, then the default model in the cache");
  command.add_option("--threads", engine.num_threads, "0: one per processor")
      ->check(CLI::Range(0, 1024));
  command.add_option("--page-size", engine.page_size, "Tokens in a page of the KV cache")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command.add_option("--prefill-chunk", engine.prefill_chunk, "Prompt tokens a step takes in")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--max-context", engine.max_context,
                  "Tokens of one row, prompt and answer; 0: as the model was made for")
      ->check(CLI::NonNegativeNumber);
}

/// NAME=DIR, cut at the first '='.
inline std::pair<std::string, std::string> parse_adapter(const std::string& text) {
  const size_t at = text.find('=');
  HEDDLE_CHECK(at != std::string::npos && at > 0 && at + 1 < text.size(), "--adapter ", text,
               ": expected NAME=DIR");
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace heddle::app
