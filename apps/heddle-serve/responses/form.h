#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/answer_form.h"
#include "responses/request.h"

namespace heddle::serve {

/// Called with the whole response as JSON text, and with the answer as a message of a chat
/// completion, in JSON text.
using OnResponse = std::function<void(const std::string& response, const std::string& message)>;

/// The answers of /v1/responses. `id` is that of the response. `on_end` is called once, where the
/// answer is whole.
[[nodiscard]] std::unique_ptr<AnswerForm> responses_form(ResponsesRequest request,
                                                         const std::string& id,
                                                         const std::string& model,
                                                         OnResponse on_end);

}  // namespace heddle::serve
