#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine/request.h"

#include "request_json/row_reader.h"

namespace heddle::app {

/// The fields of a row that only conversations have, `messages` aside.
inline constexpr std::array<std::string_view, 4> kChatFields = {
    "tools", "documents", "chat_template_kwargs", "add_generation_prompt"};

/// What becomes of fields inside messages that heddle does not know.
struct MessageFields {
  bool ignores_unknown = false;
  std::vector<std::string> ignored{};  // "messages.annotations": those that were left out
};

/// Reads `messages` in the form of OpenAI's chat API: into Request::messages where all have a role
/// and text alone, else into Request::messages_json. Parts of another type than text are refused.
/// The assistant's content may be missing, as it is with tool_calls, and counts as empty. A last
/// message of the assistant with "prefix": true is one that the answer goes on with. With `fields`,
/// what clients add to messages without a meaning for the model is left out and named there; else
/// it is refused as unknown.
void read_messages(const RowReader& row, files::Json list, Request& request,
                   MessageFields* fields = nullptr);

/// Puts a system message before a conversation that begins with none.
void add_system(const std::string& content, Request& request);

/// Reads the fields of kChatFields, after the messages. What is inside of tools, documents and
/// chat_template_kwargs is the template's.
void read_chat_fields(const RowReader& row, Request& request);

}  // namespace heddle::app
