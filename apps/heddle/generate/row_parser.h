#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/row.h"
#include "options.h"

namespace heddle::app {

/// What rows take that do not say it themselves, and the names that they may use.
struct RowDefaults {
  AnswerOptions answer{};               // row i draws with its seed + i
  std::string adapter{};                // empty: the base model
  bool raw = false;                     // `prompt` is plain text, not a user message
  std::vector<std::string> adapters{};  // all there are, but for those of --adapters
  bool finds_adapters = false;          // with --adapters: the engine knows all other names
  std::vector<std::string>
      base_names{};  // names of the base model other than kBaseName; empty before
                     // the model is loaded: then `model` is not checked
};

/// Reads the row in one line of text; `where` begins every error ("FILE, line 3"). `row.index` is
/// given. When Error is thrown, `row` holds what is echoed as far as it was read.
void parse_row(const std::string& text, const std::string& where, const RowDefaults& defaults,
               Row& row);

/// The request of row `index` before its own fields are read.
[[nodiscard]] Request default_request(const RowDefaults& defaults, int64_t index);

/// "sql, cron, base"
[[nodiscard]] std::string names_of(const std::vector<std::string>& adapters);

}  // namespace heddle::app
