#pragma once

#include "api/generation.h"
#include "engine/thread/engine_thread.h"
#include "options.h"

namespace heddle::serve {

/// Renders the conversation of a generation, or each of those of each_adapter, whose adapters are
/// resolved, by the template of the first of them, of the model or of the request, and takes from
/// that template how the answer is written: its style, what is found in its text, the grammar that
/// holds it to its format and its calls, the bound of its thoughts. The request's prompt is text
/// from here on. Takes as long as a template does: for the thread of texts. Throws Error as
/// EngineThread::render does, and app::FieldError for fields that the template has no form for.
void render_conversation(const EngineThread& engine, const app::ServeOptions& options,
                         Generation& generation);

/// Throws Error where an option names a parser that there is not.
void check_parsers(const app::ServeOptions& options);

}  // namespace heddle::serve
