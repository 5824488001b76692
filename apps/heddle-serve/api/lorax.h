#pragma once

#include <memory>
#include <string>

#include "api/answer_form.h"
#include "options.h"

namespace heddle::serve {

/// The body of LoRAX's /generate, /generate_stream and POST /.
struct LoraxGeneration {
  Generation generation;
  bool details = false, prefill = false, returns_prompt = false;
};
/// Throws ApiError and heddle::Error, which name the field.
[[nodiscard]] LoraxGeneration read_lorax(const std::string& body, const app::ServeOptions& options);

/// `in_list`: the answer is the one entry of a list, as POST / has it.
[[nodiscard]] std::unique_ptr<AnswerForm> lorax_form(const LoraxGeneration& request, bool in_list);

}  // namespace heddle::serve
