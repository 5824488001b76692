#include "generate/answer_writer.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "files/json_text.h"
#include "files/json_value.h"
#include "flush_answers.h"
#include "generate/adapter_fields.h"
#include "options.h"

namespace heddle::app {
namespace {

using files::Json;
using files::JsonArray;
using files::JsonObject;

/// In place of a log-probability that JSON has no number for: that of a token whose probability
/// is 0 (-inf), or whose logits are no numbers. OpenAI's API has the same.
constexpr double kNoLogprob = -9999.0;

/// An f32 is widened to double, whose shortest decimal form reads back to the same bits.
double number_of(float logprob) { return std::isfinite(logprob) ? double{logprob} : kNoLogprob; }

JsonArray logprobs_of(const Completion& completion) {
  JsonArray logprobs;
  for (const float logprob : completion.logprobs) logprobs.push_back(number_of(logprob));
  return logprobs;
}

/// Of each token of the prompt; the first has none.
JsonArray prompt_logprobs_of(const Completion& completion) {
  JsonArray logprobs;
  for (const float logprob : completion.prompt_logprobs) {
    logprobs.push_back(logprobs.empty() ? Json() : Json(number_of(logprob)));
  }
  return logprobs;
}

/// [[[token id, log-probability], ...], ...], one list for each place; -1 is none.
JsonArray tops_of(const std::vector<int32_t>& ids, const std::vector<float>& logprobs,
                  size_t num_places) {
  JsonArray places;
  const size_t count = num_places == 0 ? 0 : ids.size() / num_places;
  for (size_t place = 0; place < num_places; ++place) {
    JsonArray top;
    for (size_t i = place * count; i < (place + 1) * count; ++i) {
      if (ids[i] >= 0) top.push_back(JsonArray{ids[i], number_of(logprobs[i])});
    }
    places.push_back(std::move(top));
  }
  return places;
}

/// The adapters of a row in its text.
std::string name_of(const AnswerHead& head) {
  if (!head.adapters.empty()) return shown_adapters(head.adapters, head.merge);
  return head.adapter.empty() ? kBaseName : head.adapter;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// The embedding, or each label with its probability.
void add_values(const Completion& of, WantedValues::Kind kind, JsonObject& answer) {
  if (kind == WantedValues::Kind::kClasses) {
    JsonArray& classes = answer["classes"].emplace_array();
    for (size_t i = 0; i < of.values.size(); ++i) {
      classes.push_back(JsonArray{of.labels[i], double{of.values[i]}});
    }
  } else {
    JsonArray& numbers = answer["embedding"].emplace_array();
    for (const float value : of.values) numbers.push_back(double{value});
  }
  answer["prompt_tokens"] = of.prompt_tokens;
  answer["cached_tokens"] = of.cached_tokens;
  answer["error"] = text_or_null(of.error);
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

void AnswerWriter::finish_row(int64_t index, std::vector<Completion> each) {
  Completion all;  // what the row as a whole has become: it has failed where one has
  for (const Completion& one : each) {
    if (one.finish_reason != FinishReason::kError || !all.error.empty()) continue;
    all.finish_reason = FinishReason::kError;
    all.error = one.error;
    all.error_code = one.error_code;
  }
  rows_.at(index).each = std::move(each);
  finish_row(index, std::move(all));
}

/// Text of the first row as far as it is known, and every finished row before which none is
/// missing.
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
  if (row.has_several()) return write_each(row);
  if (!row.is_begun && form_ == Form::kText) {
    out_ << "[" << row.head.index << " " << name_of(row.head) << "] ";
  }
  row.is_begun = true;
  out_ << row.text;
  row.text.clear();
  if (!row.completion) return;
  if (!row.completion->error.empty()) out_ << "error: " << row.completion->error;
  out_ << "\n";
}

/// A line for each adapter or sample, once all have ended.
void AnswerWriter::write_each(const Row& row) {
  for (size_t i = 0; i < row.each.size(); ++i) {
    const Completion& one = row.each[i];
    out_ << "[" << row.head.index << " ";
    if (row.head.each.empty()) {
      out_ << name_of(row.head) << " #" << i;
    } else {
      out_ << shown_adapters(row.head.each[i], row.head.merge);
    }
    out_ << "] " << one.text;
    if (!one.error.empty()) out_ << "error: " << one.error;
    out_ << "\n";
  }
}

void AnswerWriter::write_json(const Row& row) {
  const Completion& completion = *row.completion;
  const auto member = [&](const char* name, const std::string& json) {
    out_ << ",\"" << name << "\":" << json;
  };
  // What the row gave is JSON text already.
  out_ << "{\"index\":" << row.head.index;
  member("id", row.head.id.empty() ? "null" : row.head.id);
  if (!row.head.custom_id.empty()) member("custom_id", row.head.custom_id);
  if (!row.head.metadata.empty()) member("metadata", row.head.metadata);
  JsonObject rest;
  const auto add_answer = [&](const Completion& of, JsonObject& answer) {
    if (values_ != WantedValues::Kind::kNone) return add_values(of, values_, answer);
    answer["text"] = of.text;
    answer["token_ids"] = files::json_array(of.token_ids);
    answer["prompt_tokens"] = of.prompt_tokens;
    answer["cached_tokens"] = of.cached_tokens;
    answer["completion_tokens"] = of.token_ids.size();
    answer["finish_reason"] = name(of.finish_reason);
    if (!of.adapter_digest.empty()) answer["adapter_digest"] = of.adapter_digest;
    answer["error"] = text_or_null(of.error);
  };
  const auto add_logprobs = [&](const Completion& of, JsonObject& answer) {
    if (logprobs_) answer["logprobs"] = logprobs_of(of);
    if (!of.top_token_ids.empty()) {
      answer["top_logprobs"] = tops_of(of.top_token_ids, of.top_logprobs, of.token_ids.size());
    }
    if (!of.prompt_logprobs.empty()) answer["prompt_logprobs"] = prompt_logprobs_of(of);
    if (!of.prompt_top_token_ids.empty()) {
      answer["prompt_top_logprobs"] =
          tops_of(of.prompt_top_token_ids, of.prompt_top_logprobs, of.prompt_logprobs.size());
    }
  };
  if (row.head.each.empty()) {
    rest["adapter"] = text_or_null(row.head.adapter);
    if (!row.head.adapters.empty()) add_adapters(row.head.adapters, row.head.merge, rest);
  }
  if (row.has_several()) {
    JsonArray& parts = rest[row.head.each.empty() ? "choices" : "each_adapter"].emplace_array();
    for (size_t i = 0; i < row.each.size(); ++i) {
      JsonObject entry;
      if (!row.head.each.empty()) add_adapters(row.head.each[i], row.head.merge, entry);
      add_answer(row.each[i], entry);
      add_logprobs(row.each[i], entry);
      parts.push_back(std::move(entry));
    }
    rest["error"] = text_or_null(completion.error);
  } else {
    add_answer(completion, rest);
  }
  rest["hash"] = text_or_null(row.head.hash);
  if (!row.has_several()) add_logprobs(completion, rest);
  const std::string text = files::json_text(rest);
  out_ << ',' << std::string_view(text).substr(1) << "\n";
}

}  // namespace heddle::app
