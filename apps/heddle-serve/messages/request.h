#pragma once

#include <string>

#include "api/generation.h"
#include "api/translation.h"
#include "options.h"

namespace heddle::serve {

/// A request of /v1/messages.
struct MessagesRequest {
  Generation generation{};
  bool wants_thoughts = false;  // thinking is enabled: named as ignored where the model has none
  bool hides_thoughts = false;  // blocks of thinking come without their text
};

[[nodiscard]] FieldNames messages_names();

/// The body of /v1/messages, or of /v1/messages/count_tokens, whose conversation becomes that of a
/// chat completion. Throws ApiError and heddle::Error, which name the field.
[[nodiscard]] MessagesRequest read_messages_request(const std::string& body,
                                                    const app::ServeOptions& options);
[[nodiscard]] MessagesRequest read_count_request(const std::string& body,
                                                 const app::ServeOptions& options);

}  // namespace heddle::serve
