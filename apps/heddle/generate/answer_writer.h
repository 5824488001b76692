#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle::app {

/// What an answer has of its row.
struct AnswerHead {
  int64_t index = 0;
  std::string id{}, custom_id{}, metadata{};  // JSON text; empty: not given
  std::string adapter{};                      // empty: the base model, or the list
  AdapterList adapters{};                     // the list of a row that has one
  std::vector<AdapterList> each{};            // of a row that runs with each of some
  AdapterMerge merge{};                       // of those lists of two adapters or more
  int64_t n = 1;                              // answers of a row without these
  std::string hash{};
};

/// Writes what rows become. Text and ordered JSON come in the order of the input: the first
/// unfinished row streams, those after it wait in memory. Otherwise JSON is written when its row
/// is finished. Throws std::system_error when the stream takes no more.
class AnswerWriter {
 public:
  enum class Form : uint8_t {
    kBareText,  // of a single row
    kText,      // each row begins with its index and adapter
    kJson,
    kOrderedJson,
  };

  /// `values`: what rows want in place of answers.
  AnswerWriter(std::ostream& out, Form form, bool logprobs,
               WantedValues::Kind values = WantedValues::Kind::kNone)
      : out_(out), form_(form), logprobs_(logprobs), values_(values) {}

  /// A row begins, in the order of the input; its index may leave out some.
  void begin_row(AnswerHead head);
  void add_text(int64_t index, const std::string& text);
  void finish_row(int64_t index, Completion completion);
  /// Ends a row that ran with each of AnswerHead::each, or has AnswerHead::n answers, in
  /// their order.
  void finish_row(int64_t index, std::vector<Completion> each);
  /// No more rows are finished: writes those that are and waited for an earlier one.
  void interrupt();

  /// Rows that are finished and wait.
  [[nodiscard]] int64_t num_held() const { return num_held_; }
  [[nodiscard]] int64_t num_finished() const { return num_finished_; }
  [[nodiscard]] int64_t num_failed() const { return num_failed_; }

 private:
  struct Row {
    AnswerHead head;
    std::string text;  // not yet written
    bool is_begun = false;
    std::optional<Completion> completion;
    std::vector<Completion> each;

    [[nodiscard]] bool has_several() const { return !head.each.empty() || head.n > 1; }
  };

  void write_first_rows();
  void write_text(Row& row);
  void write_json(const Row& row);
  void write_each(const Row& row);

  std::ostream& out_;
  Form form_;
  bool logprobs_;
  WantedValues::Kind values_;
  std::map<int64_t, Row> rows_;  // begun and not written, by index
  int64_t num_held_ = 0, num_finished_ = 0, num_failed_ = 0;
};

}  // namespace heddle::app
