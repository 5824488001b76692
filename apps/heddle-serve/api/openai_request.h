#pragma once

#include <string>
#include <vector>

#include "api/generation.h"
#include "files/json_tree.h"
#include "options.h"

namespace heddle::serve {

/// The body of /v1/chat/completions. Throws ApiError and heddle::Error, which name the field.
[[nodiscard]] Generation read_chat(const std::string& body, const app::ServeOptions& options);
/// read_chat of a body that is parsed, an object.
[[nodiscard]] Generation read_chat(files::JsonTree body, const app::ServeOptions& options);
/// The body of /v1/completions.
[[nodiscard]] Generation read_completion(const std::string& body, const app::ServeOptions& options);
/// "text", ["text", ...], [id, ...] or [[id, ...], ...] under `field`: a copy of `request` for
/// each, up to `most`.
[[nodiscard]] std::vector<Request> prompts_of(const files::Json& prompts, const char* field,
                                              const Request& request, int64_t most);
/// Reads the messages of a conversation, and the fields of the body that templates take.
void read_conversation(const files::Json& body, files::Json messages, bool ignores_unknown,
                       Generation& generation, Request& request);

}  // namespace heddle::serve
