#pragma once

#include "api/translation.h"

namespace heddle::serve {

/// Appends the message of `system`, a text or a list of texts.
void add_system_blocks(const json& system, Translation& translation, JsonArray& messages);

/// Appends the messages of `list`: results of tools become messages of their own, and neighbours of
/// one role one message. A last message of the assistant is what the answer goes on with. Throws
/// ApiError, which names the block.
void add_message_blocks(const json& list, Translation& translation, JsonArray& messages);

}  // namespace heddle::serve
