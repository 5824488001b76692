#pragma once

#include "api/generation.h"
#include "files/json.h"
#include "options.h"

namespace heddle::serve {

/// Reads `tools`, `tool_choice`, `parallel_tool_calls` and `parse_tool_calls` of the body of a chat
/// completion, and leaves those tools in it that the prompt shows. Throws app::FieldError.
void read_tools(files::Json& body, const app::ServeOptions& options, Generation& generation);

/// Reads what it has about thoughts: `include_reasoning` and `thinking_token_budget` of vLLM,
/// `separate_reasoning` and `stream_reasoning` of SGLang, `reasoning_format` of llama.cpp,
/// `reasoning_effort`, which it leaves in `chat_template_kwargs`. Throws Error.
void read_reasoning(files::Json& body, Generation& generation, Request& request);

}  // namespace heddle::serve
