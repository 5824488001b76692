#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "heddle/engine/engine.h"

#include "generate/line_reader.h"
#include "generate/row_parser.h"
#include "options.h"

namespace heddle::app {

/// The rows of a run, one after the other: prompts of the command line, or the lines of a file or a
/// pipe, all JSON objects or all prompts. Empty lines are skipped.
class RowSource {
 public:
  /// Throws Error when there are no prompts or the file cannot be opened.
  explicit RowSource(const GenerateOptions& options);

  /// Rows there will be; nothing is known of a pipe.
  [[nodiscard]] std::optional<int64_t> num_rows() const { return num_rows_; }
  /// What becomes readable when a row that was not there yet has come.
  [[nodiscard]] int fd() const { return lines_ ? lines_->fd() : -1; }

  /// Reads all lines of a regular file, before the model is loaded. Throws Error at the first wrong
  /// one, but with keep_going.
  void check_lines();
  /// Checks the rows with the model: names and the lengths of prompts. From here on rows are as
  /// `engine` takes them.
  void check_requests(const Engine& engine);
  /// Adapters that no row has used so far: none of a file after it was checked.
  [[nodiscard]] std::vector<std::string> unused_adapters() const;

  enum class Status : uint8_t { kRow, kNotYet, kEnd };
  /// The next row; a wrong one has its error.
  Status next(Row& row);

 private:
  Row prompt_row(const std::string& prompt, int64_t index) const;
  std::string place() const;  // of the last row, for messages
  LineReader::Status next_line(std::string& text);
  void set_format(const std::string& first_line);
  void use_text();
  void parse_line(const std::string& text, Row& row);
  void check_all(const Engine* engine);

  const GenerateOptions& options_;
  RowDefaults defaults_;
  std::optional<LineReader> lines_;  // nothing: options_.prompts
  LineFormat format_;                // kAuto: the first line was not read yet
  int64_t next_index_ = 0;
  std::optional<int64_t> num_rows_;
  std::set<std::string> used_;  // adapters, and empty for the base model
};

}  // namespace heddle::app
