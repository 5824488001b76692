#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/text/row_text.h"

namespace heddle {

/// The tokens of a request's prompt. `model_path`: for messages; `max_context`: a rendered template
/// may not be much longer. Throws Error where the request has no prompt, or more than one.
[[nodiscard]] std::vector<int32_t> prompt_tokens(const Request& request, const RowText& text,
                                                 const std::string& model_path,
                                                 int64_t max_context);

/// The text that the template makes of the request's conversation. Throws Error where it cannot.
[[nodiscard]] std::string rendered(const Request& request,
                                   const chat_template::ChatTemplates& templates,
                                   const chat_template::SpecialTokens& special_tokens,
                                   int64_t max_context);

}  // namespace heddle
