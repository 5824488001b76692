#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/answer_form.h"
#include "api/fields.h"
#include "options.h"

namespace heddle::serve {

/// LoRAX's object `parameters`, taken out of the body, with which adapters it names read:
/// adapter_id, adapter_source, api_token, merged_adapters. `more`: the other fields that it may
/// have. Empty where none is given.
[[nodiscard]] json take_parameters(json& body, std::span<const std::string_view> more,
                                   const app::ServeOptions& options, Generation& generation);

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
