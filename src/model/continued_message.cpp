#include "model/continued_message.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "chat_template/values/text.h"
#include "files/json_value.h"

namespace heddle::model {
namespace {

using files::Json;
namespace text = chat_template::text;

Json* find_member(Json& value, std::string_view key) {
  files::JsonObject* const object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

/// The string that the message's text ends with; nullptr: it has none.
Json* end_of_content(Json& messages) {
  files::JsonArray* const list = messages.if_array();
  Json* const content =
      list == nullptr || list->empty() ? nullptr : find_member(list->back(), "content");
  if (content == nullptr || content->is_string()) return content;
  files::JsonArray* const parts = content->if_array();
  if (parts == nullptr) return nullptr;
  for (size_t i = parts->size(); i > 0; --i) {
    Json* const last = find_member((*parts)[i - 1], "text");
    if (last != nullptr) return last->is_string() ? last : nullptr;
  }
  return nullptr;
}

}  // namespace

ContinuedMessage::ContinuedMessage(Json& messages, std::string mark) : mark_(std::move(mark)) {
  Json* const content = end_of_content(messages);
  HEDDLE_CHECK(content != nullptr,
               "continue_final_message: the last message has no text to go on with");
  content_ = files::text_of(*content);
  content->get_string().append(mark_ + " ");
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
