#pragma once

#include <memory>
#include <string>

#include "api/answer_form.h"
#include "messages/request.h"

namespace heddle::serve {

/// The answers of /v1/messages. `id` is that of the message.
[[nodiscard]] std::unique_ptr<AnswerForm> messages_form(MessagesRequest request,
                                                        const std::string& id,
                                                        const std::string& model);

}  // namespace heddle::serve
