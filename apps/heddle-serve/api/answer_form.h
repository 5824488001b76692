#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "api/api_error.h"
#include "api/generation.h"

namespace heddle::serve {

/// How one API writes the answers to a request. Row i is sample i % best_of of prompt i / best_of.
class AnswerForm {
 public:
  AnswerForm() = default;
  AnswerForm(const AnswerForm&) = delete;
  AnswerForm& operator=(const AnswerForm&) = delete;
  virtual ~AnswerForm() = default;

  /// The bytes with which a stream begins.
  [[nodiscard]] virtual std::string begin() { return {}; }
  /// What keeps a stream alive in which nothing else comes: a comment, which clients skip.
  [[nodiscard]] virtual std::string ping() { return ": ping\n\n"; }
  /// What an event of a row adds to the stream.
  [[nodiscard]] virtual std::string added(size_t row, const Event& event) = 0;
  /// The bytes with which a stream ends, when all rows have.
  [[nodiscard]] virtual std::string end(std::span<const Completion> rows) = 0;
  /// The end of a stream in which something went wrong.
  [[nodiscard]] virtual std::string failure(const ApiError& error) = 0;
  /// The whole answer of a request that is not streamed.
  [[nodiscard]] virtual std::string whole(std::span<const Completion> rows) = 0;
  /// The response to a request that cannot be served.
  [[nodiscard]] virtual HttpResponse refusal(const ApiError& error) = 0;
};

}  // namespace heddle::serve
