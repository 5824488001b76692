#include "results.h"

#include <nlohmann/json.hpp>

namespace heddle::app {

void ResultWriter::add_row(int64_t index, const std::string& adapter) {
  rows_[index].adapter = adapter;
}

void ResultWriter::add_text(int64_t index, const std::string& text) {
  rows_[index].text += text;
  if (index == next_) write_ready();
}

void ResultWriter::finish_row(int64_t index, Completion completion) {
  if (completion.finish_reason == FinishReason::kError) ++num_failed_;
  rows_[index].completion = std::move(completion);
  if (index == next_) write_ready();
}

void ResultWriter::write_ready() {
  for (auto it = rows_.find(next_); it != rows_.end(); it = rows_.find(next_)) {
    Row& row = it->second;
    if (form_ == Form::kText) write_text(next_, row);
    if (!row.completion) break;
    if (form_ == Form::kJson) write_json(next_, row);
    rows_.erase(it);
    ++next_;
  }
  out_.flush();
}

void ResultWriter::write_text(int64_t index, Row& row) {
  if (!row.begun) {
    out_ << "[" << index << " " << (row.adapter.empty() ? "base model" : row.adapter) << "] ";
    row.begun = true;
  }
  out_ << row.text;
  row.text.clear();
  if (row.completion) {
    if (!row.completion->error.empty()) out_ << "error: " << row.completion->error;
    out_ << "\n";
  }
}

void ResultWriter::write_json(int64_t index, const Row& row) {
  const Completion& completion = *row.completion;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json object;
  object["index"] = index;
  object["adapter"] = text_or_null(row.adapter);
  object["text"] = completion.text;
  object["token_ids"] = completion.token_ids;
  object["prompt_tokens"] = completion.prompt_tokens;
  object["completion_tokens"] = completion.token_ids.size();
  object["finish_reason"] = name(completion.finish_reason);
  object["error"] = text_or_null(completion.error);
  // Each f32 is widened to double, whose shortest decimal form reads back to the same bits.
  if (logprobs_) object["logprobs"] = completion.logprobs;
  out_ << object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace heddle::app
