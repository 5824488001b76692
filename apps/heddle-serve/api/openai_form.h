#pragma once

#include <memory>

#include "api/answer_form.h"

namespace heddle::serve {

/// /v1/chat/completions and /v1/completions. `model`: as the answer names it.
[[nodiscard]] std::unique_ptr<AnswerForm> chat_form(const Generation& generation,
                                                    const std::string& id,
                                                    const std::string& model);
[[nodiscard]] std::unique_ptr<AnswerForm> completion_form(const Generation& generation,
                                                          const std::string& id,
                                                          const std::string& model);

}  // namespace heddle::serve
