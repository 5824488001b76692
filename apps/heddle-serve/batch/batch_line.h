#pragma once

#include <string>

#include "http/message.h"

namespace heddle::serve {

/// A request of an OpenAI batch file.
struct BatchLine {
  std::string custom_id{};
  HttpRequest request{};
};

/// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}. Throws Error
/// where the line is another, or its route is none of those that answer with JSON; `custom_id` is
/// set as soon as it is read.
void read_batch_line(const std::string& text, BatchLine& line);

/// The line of the answer: {"id", "custom_id", "response": {"status_code", "request_id", "body"},
/// "error"}, where the error of a response that is none of 200 has `code` and `message`.
[[nodiscard]] std::string answered_line(const std::string& custom_id, const std::string& request_id,
                                        const HttpResponse& response);
/// That of a line which is no request: it has an error and no response. An empty custom_id is null.
[[nodiscard]] std::string refused_line(const std::string& custom_id, const std::string& request_id,
                                       const std::string& error);

}  // namespace heddle::serve
