#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "api/generation.h"
#include "api/translation.h"
#include "files/json_value.h"
#include "options.h"
#include "responses/store.h"

namespace heddle::serve {

/// A request of /v1/responses.
struct ResponsesRequest {
  Generation generation{};
  files::JsonObject echoed{};  // the fields that the response repeats
  bool is_stored = false;      // the response goes into the store, with
  std::string messages{};      // a JSON list: the conversation up to the answer
};

[[nodiscard]] FieldNames responses_names();

/// The body of /v1/responses, whose conversation becomes that of a chat completion. What it goes on
/// with is a response of `owner` in the store. Throws ApiError and heddle::Error, which name the
/// field.
[[nodiscard]] ResponsesRequest read_responses(const std::string& body,
                                              const app::ServeOptions& options,
                                              ResponseStore& store, const std::string& owner);

}  // namespace heddle::serve
