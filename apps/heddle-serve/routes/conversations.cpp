// The routes of OpenAI's Responses API and of Anthropic's Messages API.
#include <random>

#include "api/api_error.h"
#include "api/fields.h"
#include "api/forms/token_json.h"
#include "messages/form.h"
#include "messages/request.h"
#include "request_json/shown.h"
#include "responses/form.h"
#include "responses/request.h"
#include "routes/routes.h"
#include "service/conversation.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;

/// One that no client can guess: it is what the store finds a response by.
std::string response_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  thread_local std::random_device random;
  std::string id = "resp_";
  for (int i = 0; i < 32; ++i) id += kDigits[random() & 15];
  return id;
}

/// An id of the client's choice as a header may have it.
std::string plain_id(std::string id) {
  std::erase_if(id, [](char c) { return c <= ' ' || c > '~'; });
  return id;
}

}  // namespace

net::awaitable<void> Routes::responses(const HttpRequest& request, Responder& responder,
                                       RequestLog& log) {
  const std::string owner = Access::owner_of(request);
  const auto read = [&] { return read_responses(request.body, service_.options(), store_, owner); };
  ResponsesRequest asked = co_await read_body(request.body, read);
  Generation generation = asked.generation;
  responder.forget_body();
  co_await admit(request, generation, responder, log);
  co_await render_prompt(generation, responses_names());
  name_ignored(generation, responder);
  asked.generation = generation;
  const std::string id = response_id();
  OnResponse on_end;
  if (asked.is_stored) {
    on_end = [this, id, owner, conversation = asked.messages](const std::string& response,
                                                              const std::string& message) {
      std::string messages = conversation.substr(0, conversation.size() - 1);  // its bracket
      messages += "," + message + "]";
      store_.put(id, {.owner = owner, .response = response, .messages = std::move(messages)});
    };
  }
  const std::string model = service_.names().answer_name(generation.choice);
  const auto form = responses_form(std::move(asked), id, model, std::move(on_end));
  co_await answer(service_, generation, *form, responder, log);
}

HttpResponse Routes::stored_response(const HttpRequest& request, const RouteMatch& match) {
  if (!store_.is_on()) {
    throw ApiError(404, "NotFoundError",
                   "the server stores no responses; start it with --response-store");
  }
  const std::string owner = Access::owner_of(request);
  const ApiError missing(404, "NotFoundError", "there is no response " + app::quote(match.name));
  if (match.route == Route::kDeleteResponse) {
    if (!store_.erase(match.name, owner)) throw missing;
    const JsonObject gone{{"id", match.name}, {"object", "response"}, {"deleted", true}};
    return {.body = files::json_text(gone)};
  }
  if (request.query.find("stream=true") != std::string::npos) {
    throw bad_request("stream: a stored response comes whole; leave the parameter out", "stream");
  }
  const auto stored = store_.find(match.name, owner);
  if (stored == nullptr) throw missing;
  return {.body = stored->response};
}

net::awaitable<void> Routes::messages(const HttpRequest& request, Responder& responder,
                                      RequestLog& log) {
  const auto read = [&] { return read_messages_request(request.body, service_.options()); };
  MessagesRequest asked = co_await read_body(request.body, read);
  Generation generation = asked.generation;
  responder.forget_body();
  co_await admit(request, generation, responder, log);
  co_await render_prompt(generation, messages_names());
  if (asked.wants_thoughts && !generation.parser.finds_reasoning) {
    generation.ignored.emplace_back("thinking");  // the model does not think aloud
  }
  responder.set_header("Request-Id", "req_" + plain_id(log.id));
  name_ignored(generation, responder);
  asked.generation = generation;
  const std::string model = service_.names().answer_name(generation.choice);
  const auto form = messages_form(std::move(asked), "msg_" + log.id, model);
  co_await answer(service_, generation, *form, responder, log);
}

net::awaitable<HttpResponse> Routes::count_tokens(const HttpRequest& http, Responder& responder) {
  const auto read = [&] { return read_count_request(http.body, service_.options()).generation; };
  Generation generation = co_await read_body(http.body, read);
  name_ignored(generation, responder);
  Request& request = generation.prompts.front();
  RequestLog unused;
  co_await resolve(http, generation, unused);
  co_await render_prompt(generation, messages_names());
  const auto count = [&] {
    const auto tokenizer = service_.engine().tokenizer(request);
    const JsonObject answer{{"input_tokens", tokenizer->tokenize(request).size()}};
    return HttpResponse{.body = files::json_text(answer)};
  };
  co_return co_await service_.run_on(Service::Worker::kTexts, count);
}

}  // namespace heddle::serve
