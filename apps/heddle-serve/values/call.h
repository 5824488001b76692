#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "api/answer_form.h"
#include "api/fields.h"
#include "api/forms/token_json.h"
#include "engine/thread/engine_thread.h"
#include "files/json_text.h"
#include "options.h"

namespace heddle::serve {

/// What answers of all APIs have.
struct CallNames {
  std::string id{};     // without a prefix
  std::string model{};  // as the answer has it
};

/// A request of an API whose answers are numbers: its prompts have Request::values.
struct ValuesCall {
  Generation generation{};
  /// What must be known of the model or its adapter before the prompts run: called in the thread of
  /// texts with the adapters resolved. May be empty.
  std::function<void(EngineThread& engine, Generation& generation)> prepare{};
  /// The response to completions of all prompts, in their order.
  std::function<json(std::span<const Completion> rows, const CallNames& names)> write{};
};

/// What writes the answer. `is_lorax`: errors have LoRAX's form.
[[nodiscard]] std::unique_ptr<AnswerForm> values_form(ValuesCall call, CallNames names,
                                                      bool is_lorax);

/// A body of such an API, without fields that it does not have, and what it says that is the same
/// for all: which model, how prompts become tokens, a salt.
struct ValuesBody {
  files::JsonTree tree{};
  Generation generation{};  // without prompts
  Request request{};        // what a prompt begins from
};
/// `fields`: the API's own. Throws ApiError and Error, which name the field.
[[nodiscard]] ValuesBody read_values_body(files::JsonTree tree,
                                          std::span<const std::string_view> fields,
                                          const app::ServeOptions& options);

/// {"prompt_tokens": 12, "total_tokens": 12}
[[nodiscard]] JsonObject values_usage(std::span<const Completion> rows);
/// {"id": "embd-...", "object": "list", "created": ..., "model": ...}, to which `data` comes.
[[nodiscard]] JsonObject values_head(const char* prefix, const CallNames& names);
/// Numbers as a list.
[[nodiscard]] JsonArray number_list(std::span<const float> values);

}  // namespace heddle::serve
