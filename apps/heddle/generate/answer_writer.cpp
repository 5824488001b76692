#include "generate/answer_writer.h"

#include <nlohmann/json.hpp>

#include "flush_answers.h"
#include "options.h"

namespace heddle::app {
namespace {

using nlohmann::ordered_json;

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

}  // namespace

void AnswerWriter::begin_row(AnswerHead head) {
  const int64_t index = head.index;
  rows_[index].head = std::move(head);
}

void AnswerWriter::add_text(int64_t index, const std::string& text) {
  if (form_ == Form::kJson || form_ == Form::kOrderedJson) return;  // the completion has it
  rows_.at(index).text += text;
  if (index == rows_.begin()->first) write_first_rows();
}

void AnswerWriter::finish_row(int64_t index, Completion completion) {
  ++num_finished_;
  if (completion.finish_reason == FinishReason::kError) ++num_failed_;
  Row& row = rows_.at(index);
  row.completion = std::move(completion);
  if (form_ == Form::kJson) {
    write_json(row);
    rows_.erase(index);
    flush_answers(out_);
    return;
  }
  ++num_held_;
  if (index == rows_.begin()->first) write_first_rows();
}

/// Text of the first row as far as it is there, and every finished row behind which none waits.
void AnswerWriter::write_first_rows() {
  while (!rows_.empty()) {
    Row& row = rows_.begin()->second;
    if (form_ != Form::kOrderedJson) write_text(row);
    if (!row.completion) break;
    if (form_ == Form::kOrderedJson) write_json(row);
    rows_.erase(rows_.begin());
    --num_held_;
  }
  flush_answers(out_);
}

void AnswerWriter::interrupt() {
  if (!rows_.empty() && rows_.begin()->second.is_begun) out_ << "\n";  // a text that breaks off
  std::erase_if(rows_, [](const auto& entry) { return !entry.second.completion; });
  write_first_rows();
}

void AnswerWriter::write_text(Row& row) {
  if (!row.is_begun && form_ == Form::kText) {
    const std::string& adapter = row.head.adapter;
    out_ << "[" << row.head.index << " " << (adapter.empty() ? kBaseName : adapter) << "] ";
  }
  row.is_begun = true;
  out_ << row.text;
  row.text.clear();
  if (!row.completion) return;
  if (!row.completion->error.empty()) out_ << "error: " << row.completion->error;
  out_ << "\n";
}

void AnswerWriter::write_json(const Row& row) {
  const Completion& completion = *row.completion;
  ordered_json object;
  object["index"] = row.head.index;
  object["id"] = row.head.id.empty() ? ordered_json() : ordered_json::parse(row.head.id);
  if (!row.head.custom_id.empty()) object["custom_id"] = ordered_json::parse(row.head.custom_id);
  if (!row.head.metadata.empty()) object["metadata"] = ordered_json::parse(row.head.metadata);
  object["adapter"] = text_or_null(row.head.adapter);
  object["text"] = completion.text;
  object["token_ids"] = completion.token_ids;
  object["prompt_tokens"] = completion.prompt_tokens;
  object["completion_tokens"] = completion.token_ids.size();
  object["finish_reason"] = name(completion.finish_reason);
  object["error"] = text_or_null(completion.error);
  object["hash"] = text_or_null(row.head.hash);
  // Each f32 is widened to double, whose shortest decimal form reads back to the same bits.
  if (logprobs_) object["logprobs"] = completion.logprobs;
  out_ << object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace heddle::app
