#pragma once

#include <functional>
#include <optional>

#include "api/translation.h"
#include "http/responder.h"
#include "limits/rate_limits.h"
#include "responses/store.h"
#include "routes/access.h"
#include "routes/answer.h"
#include "routes/route.h"
#include "service/service.h"

namespace heddle::serve {

/// All routes of the server.
class Routes {
 public:
  Routes(Service& service, const Access& access, RateLimits& limits,
         std::function<int()> num_connections)
      : service_(service),
        access_(access),
        limits_(limits),
        num_connections_(std::move(num_connections)),
        store_(service.options().response_store, service.options().response_store_bytes) {}

  /// The response to a request that Access refuses by its head, which is logged and counted, or to
  /// a preflight of CORS; nothing: it may go on.
  [[nodiscard]] std::optional<HttpResponse> refuse_head(const HttpRequest& head);
  /// Answers a request whose head Access has let pass, and writes its line of the log. Without the
  /// reserve of memory it is refused.
  boost::asio::awaitable<void> handle(const HttpRequest& request, Responder& responder,
                                      bool has_reserve);

 private:
  using IsKnown = boost::asio::awaitable<bool>;  // whether there is such a route

  [[nodiscard]] RequestLog log_of(const HttpRequest& head) const;
  void end(const HttpRequest& request, const RequestLog& log);
  IsKnown route(const HttpRequest& request, Responder& responder, RequestLog& log);
  boost::asio::awaitable<HttpResponse> answer_admin(const HttpRequest& request,
                                                    const RouteMatch& match, Responder& responder);
  boost::asio::awaitable<HttpResponse> load_body(const HttpRequest& request, Route route,
                                                 Responder& responder);
  /// read() of a body, in another thread where that takes long.
  template <class Read>
  boost::asio::awaitable<std::invoke_result_t<Read>> read_body(const std::string& body,
                                                               const Read& read) {
    constexpr size_t kLong = 64 << 10;  // bytes
    if (body.size() <= kLong) co_return read();
    co_return co_await service_.run_on(Service::Worker::kTexts, read);
  }
  boost::asio::awaitable<void> chat(const HttpRequest& request, Responder& responder,
                                    RequestLog& log, bool is_chat);
  boost::asio::awaitable<void> lorax(const HttpRequest& request, Responder& responder,
                                     RequestLog& log);
  boost::asio::awaitable<void> responses(const HttpRequest& request, Responder& responder,
                                         RequestLog& log);
  boost::asio::awaitable<void> values(const HttpRequest& request, Responder& responder,
                                      RequestLog& log, Route route);
  HttpResponse stored_response(const HttpRequest& request, const RouteMatch& match);
  boost::asio::awaitable<void> messages(const HttpRequest& request, Responder& responder,
                                        RequestLog& log);
  boost::asio::awaitable<HttpResponse> count_tokens(const HttpRequest& http, Responder& responder);
  boost::asio::awaitable<HttpResponse> tokenize(const HttpRequest& http, Responder& responder);
  boost::asio::awaitable<HttpResponse> detokenize(const HttpRequest& http, Responder& responder);
  HttpResponse facts(const HttpRequest& request, const RouteMatch& match, const std::string& key);
  HttpResponse info();
  HttpResponse metrics();
  [[nodiscard]] HttpResponse health() const;
  boost::asio::awaitable<void> cut_echoed(Generation& generation);
  boost::asio::awaitable<void> render_prompt(Generation& generation, FieldNames names = {});
  /// The header with the fields that are accepted and have no effect.
  static void name_ignored(const Generation& generation, Responder& responder);
  /// Resolves the request and takes from the limits of its key what it needs. Throws ApiError where
  /// they do not let it pass.
  boost::asio::awaitable<void> admit(const HttpRequest& http, Generation& generation,
                                     Responder& responder, RequestLog& log);
  /// Throws ApiError where it is lower than those that the key may ask for.
  [[nodiscard]] int64_t priority_of(const std::string& key, const Generation& generation) const;
  void check_adapter(const std::string& key, const std::string& name) const;
  void check_adapters(const std::string& key, const ModelChoice& choice,
                      const Request& request) const;
  /// Which adapters the request has, which are fetched where they may be, and whose share of the
  /// engine it takes.
  boost::asio::awaitable<void> resolve(const HttpRequest& http, Generation& generation,
                                       RequestLog& log);

  Service& service_;
  const Access& access_;
  RateLimits& limits_;
  std::function<int()> num_connections_;
  ResponseStore store_;
};

}  // namespace heddle::serve
