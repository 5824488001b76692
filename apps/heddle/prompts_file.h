#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "heddle/engine/request.h"

namespace heddle::app {

/// Settings of the command line that rows without their own take.
struct RowDefaults {
  bool raw = false;  // `prompt` is plain text, not a user message
  int64_t seed = 0;  // row i draws with seed + i
};

/// A file of one JSON object a line. Empty lines are skipped; unknown fields are ignored.
class PromptsFile {
 public:
  PromptsFile(const std::string& path, const RowDefaults& defaults);

  /// The next row, nothing at the end. Throws Error with file, line and field when a row is wrong.
  std::optional<Request> next();

  /// Reads the whole file; returns the number of rows. Throws as next().
  static int64_t check(const std::string& path, const RowDefaults& defaults);

 private:
  std::string path_;
  RowDefaults defaults_;
  std::ifstream file_;
  int64_t line_ = 0, row_ = 0;
};

/// The row in one line of text; `where` begins every error ("FILE, line 3").
Request parse_row(const std::string& text, const std::string& where, bool raw, int64_t seed);

}  // namespace heddle::app
