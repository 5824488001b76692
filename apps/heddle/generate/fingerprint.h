#pragma once

#include <map>
#include <string>

#include "heddle/engine/request.h"

#include "generate/row.h"
#include "options.h"

namespace heddle::app {

/// Tells whether an answer is that of a row: 32 hexadecimal digits (XXH3, 128 bits) of all that the
/// answer depends on. That is the prompt, the adapter's files, the options, and the model by its
/// size and its first and last MiB. The name of the model's file, threads and batch do not count.
class Fingerprint {
 public:
  /// Reads what it needs of the model and of all adapters.
  Fingerprint(const GenerateOptions& options, const std::vector<std::string>& model_files);

  [[nodiscard]] std::string of(const Row& row) const;

 private:
  bool logprobs_;
  std::string model_;
  std::map<std::string, std::string> adapters_;  // by name
};

}  // namespace heddle::app
