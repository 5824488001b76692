#pragma once

#include <string>

namespace heddle::app {

/// The options of `heddle pull`.
struct PullOptions {
  std::string id;  // ORG/NAME
  std::string revision = "main";
  std::string file;  // GGUF file of it; empty: none
  bool is_adapter = false;
  bool quiet = false;
};

/// Fetches a model or an adapter from the hub into the cache of Hugging Face's tools, and prints
/// where it lies. Returns the exit code of the program.
int pull(const PullOptions& options);

}  // namespace heddle::app
