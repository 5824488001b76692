#pragma once

#include <string>

#include "values/call.h"

namespace heddle::serve {

/// The body of /v1/score and /score in vLLM's form: text_1 against each of text_2.
[[nodiscard]] ValuesCall read_score(const std::string& body, const app::ServeOptions& options);
/// The body of /rerank, /v1/rerank and /v2/rerank: a query against documents, as vLLM, Jina and
/// Cohere have it. `path` says which form the answer has.
[[nodiscard]] ValuesCall read_rerank(const std::string& body, const std::string& path,
                                     const app::ServeOptions& options);

}  // namespace heddle::serve
