#pragma once

#include <array>
#include <string_view>

#include "heddle/engine/request.h"

#include "generate/row_reader.h"

namespace heddle::app {

/// The fields of a row that only conversations have, `messages` aside.
inline constexpr std::array<std::string_view, 4> kChatFields = {
    "tools", "documents", "chat_template_kwargs", "add_generation_prompt"};

/// Reads `messages` in the form of OpenAI's chat API: into Request::messages where all have a role
/// and text alone, else into Request::messages_json. Parts of another type than text are refused.
void read_messages(const RowReader& row, const files::Json& messages, Request& request);

/// Puts a system message in front of a conversation that begins with none.
void add_system(const std::string& content, Request& request);

/// Reads the fields of kChatFields. What is inside of tools, documents and chat_template_kwargs is
/// the template's.
void read_chat_fields(const RowReader& row, Request& request);

}  // namespace heddle::app
