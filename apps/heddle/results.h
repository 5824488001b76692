#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "heddle/engine/request.h"

namespace heddle::app {

/// Writes what rows become in the order of the input, each as early as that order allows: the first
/// unfinished row streams, later ones wait in memory.
class ResultWriter {
 public:
  enum class Form : uint8_t { kText, kJson };

  ResultWriter(std::ostream& out, Form form, bool logprobs)
      : out_(out), form_(form), logprobs_(logprobs) {}

  /// Row `index` begins; `adapter` is empty for the base model.
  void add_row(int64_t index, const std::string& adapter);
  void add_text(int64_t index, const std::string& text);
  void finish_row(int64_t index, Completion completion);

  /// The first row that is not written yet.
  [[nodiscard]] int64_t next_index() const { return next_; }
  [[nodiscard]] int64_t num_failed() const { return num_failed_; }

 private:
  struct Row {
    std::string adapter;
    std::string text;  // not yet written
    bool begun = false;
    std::optional<Completion> completion;
  };

  void write_ready();
  void write_text(int64_t index, Row& row);
  void write_json(int64_t index, const Row& row);

  std::ostream& out_;
  Form form_;
  bool logprobs_;
  std::map<int64_t, Row> rows_;
  int64_t next_ = 0, num_failed_ = 0;
};

}  // namespace heddle::app
