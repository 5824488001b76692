#pragma once

#include <map>
#include <string>

#include "heddle/engine/request.h"

#include "generate/row.h"
#include "options.h"

namespace heddle::app {

/// Identifies the row of an answer: 32 hexadecimal digits (XXH3, 128 bits) of all that the
/// answer depends on. That is the prompt, the adapter's files, the options, and the model by its
/// size and its first and last MiB. The name of the model's file, threads and batch do not count.
class Fingerprint {
 public:
  /// Reads what it needs of the model and of the adapters that are given one by one.
  Fingerprint(const GenerateOptions& options, const std::vector<std::string>& model_files);

  /// Reads the adapters of --adapters, too, when they first come up.
  [[nodiscard]] std::string of(const Row& row);

 private:
  const std::string& hash_of(const std::string& adapter);

  bool logprobs_;
  std::string model_;
  std::string adapter_dir_;
  std::map<std::string, std::string> adapters_;  // by name
};

}  // namespace heddle::app
