// The routes that answer with numbers: embeddings, classes, scores, decisions.
#include "routes/routes.h"
#include "values/classify.h"
#include "values/decisions.h"
#include "values/embeddings.h"
#include "values/rerank.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;

ValuesCall read_call(Route route, const HttpRequest& request, const app::ServeOptions& options) {
  switch (route) {
    case Route::kLoraxEmbed: return read_lorax_embed(request.body, options);
    case Route::kClassify: return read_classify(request.body, options);
    case Route::kScore: return read_score(request.body, options);
    case Route::kRerank: return read_rerank(request.body, request.path, options);
    case Route::kDecisions: return read_decisions(request.body, options);
    default: return read_embeddings(request.body, options);
  }
}

}  // namespace

net::awaitable<void> Routes::values(const HttpRequest& request, Responder& responder,
                                    RequestLog& log, Route route) {
  const auto read = [&] { return read_call(route, request, service_.options()); };
  ValuesCall call = co_await read_body(request.body, read);
  name_ignored(call.generation, responder);
  responder.forget_body();
  co_await admit(request, call.generation, responder, log);
  if (call.prepare) {
    const auto prepare = [&] {
      call.prepare(service_.engine(), call.generation);
      return true;
    };
    (void)co_await service_.run_on(Service::Worker::kTexts, prepare);
  }
  const Generation generation = call.generation;
  const CallNames names{.id = log.id, .model = service_.names().answer_name(generation.choice)};
  const auto form = values_form(std::move(call), names, is_lorax_route(request));
  co_await answer(service_, generation, *form, responder, log);
}

}  // namespace heddle::serve
