#pragma once

#include <string>

#include "api/answer_form.h"
#include "http/responder.h"
#include "routes/request_ids.h"
#include "service/service.h"

namespace heddle::serve {

/// What the log has of a request; never its text.
struct RequestLog {
  std::string route{}, outcome{};
  std::string id{};          // of the answer: the body's request_id, or else request_id
  std::string request_id{};  // of X-Request-Id
  std::string adapter{};     // adapter_of; empty: it is not known yet
  std::string key{};         // the name of its holder; empty: the request has no key
  std::string client{};      // its address
  TraceParent parent{};
  unsigned status = 200;
  int64_t prompt_tokens = 0, answer_tokens = 0;
  RequestTimes times{};
};

/// Runs the request and sends what `form` makes of its answers: whole, or as a stream of
/// server-sent events. Its adapters are resolved. Throws ApiError before anything is sent; a
/// request whose client has gone ends with it.
boost::asio::awaitable<void> answer(Service& service, const Generation& generation,
                                    AnswerForm& form, Responder& responder, RequestLog& log);

}  // namespace heddle::serve
