#include "model/continued_message.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "chat_template/values/text.h"

namespace heddle::model {
namespace {

using json = nlohmann::ordered_json;
namespace text = chat_template::text;

/// The string that the message's text ends with; nullptr: it has none.
json* end_of_content(json& messages) {
  const bool has_message = messages.is_array() && !messages.empty() && messages.back().is_object();
  if (!has_message) return nullptr;
  const auto content = messages.back().find("content");
  if (content == messages.back().end()) return nullptr;
  if (content->is_string()) return &*content;
  if (!content->is_array()) return nullptr;
  const auto has_text = [](const json& part) { return part.is_object() && part.contains("text"); };
  const auto part = std::find_if(content->rbegin(), content->rend(), has_text);
  if (part == content->rend()) return nullptr;
  json& last = (*part)["text"];
  return last.is_string() ? &last : nullptr;
}

}  // namespace

ContinuedMessage::ContinuedMessage(json& messages, std::string mark) : mark_(std::move(mark)) {
  json* const content = end_of_content(messages);
  HEDDLE_CHECK(content != nullptr,
               "continue_final_message: the last message has no text to go on with");
  auto& end = content->get_ref<std::string&>();
  content_ = end;
  end += mark_ + " ";
}

void ContinuedMessage::end_text(std::string& rendered) const {
  const size_t place = rendered.rfind(mark_);
  const std::string_view said = text::strip_left(text::strip_right(content_));
  HEDDLE_CHECK(place != std::string::npos && text::find(rendered, said) != std::string_view::npos,
               "continue_final_message: the last message's content is not in the rendered text; "
               "the model's chat template leaves out a part of it");
  const size_t end = place + mark_.size();
  const bool keeps_spaces = end < rendered.size() && rendered[end] == ' ';
  rendered.resize(place);
  if (!keeps_spaces) rendered.resize(text::strip_right(rendered).size());
}

}  // namespace heddle::model
