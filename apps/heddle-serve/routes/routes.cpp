#include "routes/routes.h"

#include <algorithm>

#include <boost/system/system_error.hpp>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "api/fields.h"
#include "api/forms/token_json.h"
#include "api/lorax.h"
#include "api/openai_form.h"
#include "api/openai_request.h"
#include "api/tokenize.h"
#include "request_json/field_error.h"
#include "routes/adapter_bodies.h"
#include "routes/adapters.h"
#include "routes/log_line.h"
#include "routes/page.h"
#include "routes/request_ids.h"
#include "service/conversation.h"
#include "service/shares.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;

/// The names of fields as a header holds them: what is no letter, digit or sign of a name is '?'.
std::string header_list(const std::vector<std::string>& names) {
  constexpr size_t kLongestName = 64;
  constexpr std::string_view kSigns = "._-$[]";
  std::string list;
  for (const std::string& name : names) {
    if (!list.empty()) list += ", ";
    for (const char c : std::string_view(name).substr(0, kLongestName)) {
      const char lower = static_cast<char>(c | 0x20);
      const bool is_plain = (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') ||
                            kSigns.find(c) != std::string_view::npos;
      list += is_plain ? c : '?';
    }
  }
  return list;
}

HttpResponse json_response(const json& body) { return {.body = files::json_text(body)}; }

/// vLLM answers in plain text under /v1/, what has other names in JSON.
HttpResponse success(HttpResponse response, const HttpRequest& request) {
  const bool is_plain =
      request.path == "/v1/load_lora_adapter" || request.path == "/v1/unload_lora_adapter";
  if (is_plain) return response;
  return json_response({{"status", "success"}, {"success", true}, {"message", response.body}});
}

/// Whether the response has the state of the engine.
bool shows_engine(Route route) {
  constexpr Route kRoutes[] = {Route::kMetrics, Route::kState, Route::kListModels,
                               Route::kShowModel, Route::kListAdapters};
  return std::ranges::find(kRoutes, route) != std::end(kRoutes);
}

ApiError no_such_route(const std::string& path) {
  const std::string methods = allowed_methods(path);
  if (methods.empty()) return {404, "NotFoundError", "there is no such route"};
  return method_not_allowed(methods);
}

JsonArray lorax_tokens(const std::string& prompt, const std::vector<int32_t>& ids,
                       const TokenTexts& texts) {
  JsonArray tokens;
  size_t place = 0;
  for (const int32_t id : ids) {
    const std::string_view text = texts.bytes(id);
    const bool is_inside = !texts.is_special(id) && prompt.compare(place, text.size(), text) == 0;
    tokens.push_back(JsonObject{{"id", id},
                                {"text", text},
                                {"start", place},
                                {"stop", is_inside ? place + text.size() : place}});
    if (is_inside) place += text.size();
  }
  return tokens;
}

JsonObject token_list(const std::vector<int32_t>& ids, const TokenTexts& texts, int64_t max_context,
                      bool with_texts) {
  JsonObject answer{
      {"count", ids.size()}, {"max_model_len", max_context}, {"tokens", files::json_array(ids)}};
  json& strings = answer["token_strs"];
  if (!with_texts) return answer;
  for (JsonArray& list = strings.emplace_array(); const int32_t id : ids) {
    list.emplace_back(texts.bytes(id));
  }
  return answer;
}

}  // namespace

RequestLog Routes::log_of(const HttpRequest& head) const {
  const std::string id = request_id_of(head);
  RequestLog log{.route = head.path, .id = id, .request_id = id, .client = head.client};
  log.parent = trace_parent_of(head.header("traceparent"));
  if (const KeyHolder* const holder = access_.holder_of(head)) log.key = holder->name;
  return log;
}

void Routes::end(const HttpRequest& request, const RequestLog& log) {
  service_.metrics().count_request({.route = label_of(request),
                                    .status = log.status,
                                    .times = log.times,
                                    .adapter = log.adapter,
                                    .key = log.key,
                                    .prompt_tokens = log.prompt_tokens,
                                    .answer_tokens = log.answer_tokens});
  write_log(log);
}

std::optional<HttpResponse> Routes::refuse_head(const HttpRequest& head) {
  std::optional<HttpResponse> response = access_.check(head);
  if (!response) return response;
  RequestLog log = log_of(head);
  response->headers.emplace_back(kRequestIdHeader, log.request_id);
  if (response->status < 400) return response;  // a preflight
  log.status = response->status;
  log.outcome = "refused";
  end(head, log);
  return response;
}

net::awaitable<void> Routes::handle(const HttpRequest& request, Responder& responder,
                                    bool has_reserve) {
  RequestLog log = log_of(request);
  for (auto& [name, value] : access_.cors_headers(request)) responder.set_header(name, value);
  responder.set_header(kRequestIdHeader, log.request_id);
  std::optional<ApiError> failure;
  try {
    if (!has_reserve) throw unavailable("out of memory");
    const bool is_known = co_await route(request, responder, log);
    if (!is_known) failure = no_such_route(request.path);
  } catch (const ApiError& error) {
    failure = error;
  } catch (const app::FieldError& error) {
    failure = bad_request(service_.names().without_folders(error.what()), error.field());
  } catch (const Error& error) {
    failure = engine_error(request_error(error), service_.names().without_folders(error.what()));
  } catch (const std::bad_alloc&) {
    failure = unavailable("out of memory");
  } catch (const boost::system::system_error&) {  // of the connection
    log.outcome = "gone";
    write_log(log);
    throw;
  }
  if (failure) {
    log.status = failure->status();
    log.outcome = "refused";
    HttpResponse response =
        is_lorax_route(request) ? lorax_error(*failure) : error_for(request.path, *failure);
    co_await responder.send(std::move(response));
  }
  end(request, log);
}

void Routes::name_ignored(const Generation& generation, Responder& responder) {
  if (generation.ignored.empty()) return;
  responder.set_header("X-Heddle-Ignored", header_list(generation.ignored));
}

net::awaitable<void> Routes::resolve(const HttpRequest& http, Generation& generation,
                                     RequestLog& log) {
  if (!generation.request_id.empty()) log.id = generation.request_id;
  if (generation.room > 0) {
    const int64_t context = service_.engine().options().max_context;
    const int64_t kept = std::max<int64_t>(context - std::min(generation.room, context), 1);
    for (Request& request : generation.prompts) request.truncate_prompt_tokens = kept;
  }
  const std::string& model = generation.choice.model;
  const bool has_each = !generation.each.empty();
  if (has_each && !model.empty() && !service_.names().is_base(model)) {
    throw bad_request("model names an adapter, and each_adapter is given; leave one of them out",
                      "model");
  }
  const KeyHolder* const holder = access_.holder_of(http);
  for (size_t i = 0; i < generation.prompts.size(); ++i) {
    Request& request = generation.prompts[i];
    ModelChoice& choice = has_each ? generation.each[i].choice : generation.choice;
    if (has_each || i == 0) co_await service_.fetch_adapters(choice);
    service_.names().resolve(choice, request);
    set_share(service_.options(), holder, request);
  }
  const bool is_one = generation.each.size() < 2;
  log.adapter = is_one ? adapter_of(generation.prompts.front()) : "several";
}

/// What the template of the model or its adapter makes of the conversation, and says of the answer.
/// Errors and ignored fields have the names that the body has.
net::awaitable<void> Routes::render_prompt(Generation& generation, FieldNames names) {
  const auto render = [&] {
    try {
      render_conversation(service_.engine(), service_.options(), generation);
    } catch (const app::FieldError& error) {
      throw error_in(names, error);
    }
    for (std::string& name : generation.ignored) name = name_in(names, std::move(name));
    return true;
  };
  (void)co_await service_.run_on(Service::Worker::kTexts, render);
}

/// Where a prompt is cut to its last tokens and comes back with the answer, what comes back are
/// these: an answer is as large as its tokens make it.
net::awaitable<void> Routes::cut_echoed(Generation& generation) {
  for (Request& request : generation.prompts) {
    if (!generation.echo || request.truncate_prompt_tokens == 0 || !request.text) continue;
    const auto cut = [&] {
      const auto tokenizer = service_.engine().tokenizer(request);
      request.token_ids = tokenizer->tokenize(request);
      return tokenizer->detokenize(*request.token_ids);
    };
    generation.echoed = co_await service_.run_on(Service::Worker::kTexts, cut);
    request.text.reset();
  }
}

net::awaitable<void> Routes::chat(const HttpRequest& request, Responder& responder, RequestLog& log,
                                  bool is_chat) {
  const auto read = [&] {
    return is_chat ? read_chat(request.body, service_.options())
                   : read_completion(request.body, service_.options());
  };
  Generation generation = co_await read_body(request.body, read);
  name_ignored(generation, responder);
  responder.forget_body();
  co_await admit(request, generation, responder, log);
  if (is_chat) {
    co_await render_prompt(generation);
    name_ignored(generation, responder);
  }
  co_await cut_echoed(generation);
  const std::string model = service_.names().answer_name(generation.choice);
  const auto form =
      is_chat ? chat_form(generation, log.id, model) : completion_form(generation, log.id, model);
  co_await answer(service_, generation, *form, responder, log);
}

net::awaitable<void> Routes::lorax(const HttpRequest& request, Responder& responder,
                                   RequestLog& log) {
  const auto read = [&] { return read_lorax(request.body, service_.options()); };
  LoraxGeneration lorax = co_await read_body(request.body, read);
  name_ignored(lorax.generation, responder);
  responder.forget_body();
  if (request.path == "/generate_stream") lorax.generation.stream = true;
  if (request.path == "/generate") lorax.generation.stream = false;
  co_await admit(request, lorax.generation, responder, log);
  co_await cut_echoed(lorax.generation);
  const auto form = lorax_form(lorax, request.path == "/");
  co_await answer(service_, lorax.generation, *form, responder, log);
}

net::awaitable<HttpResponse> Routes::tokenize(const HttpRequest& http, Responder& responder) {
  const auto read = [&] { return read_tokenize(http.body, service_.options()); };
  TokenizeCall call = co_await read_body(http.body, read);
  name_ignored(call.generation, responder);
  Request& request = call.generation.prompts.front();
  co_await service_.fetch_adapters(call.generation.choice);
  service_.names().resolve(call.generation.choice, request);
  const int64_t context = service_.engine().options().max_context;
  const auto tokenize = [&] {
    const auto tokenizer = service_.engine().tokenizer(request);
    const std::vector<int32_t> ids = tokenizer->tokenize(request);
    const auto texts = tokenizer->texts();
    if (call.is_lorax) return json_response(lorax_tokens(*request.text, ids, *texts));
    return json_response(token_list(ids, *texts, context, call.returns_texts));
  };
  co_return co_await service_.run_on(Service::Worker::kTexts, tokenize);
}

net::awaitable<HttpResponse> Routes::detokenize(const HttpRequest& http, Responder& responder) {
  const auto read = [&] { return read_detokenize(http.body, service_.options()); };
  Generation generation = co_await read_body(http.body, read);
  name_ignored(generation, responder);
  Request& request = generation.prompts.front();
  co_await service_.fetch_adapters(generation.choice);
  service_.names().resolve(generation.choice, request);
  const auto detokenize = [&] {
    const auto tokenizer = service_.engine().tokenizer(request);
    return json_response(JsonObject{{"prompt", tokenizer->detokenize(*request.token_ids)}});
  };
  co_return co_await service_.run_on(Service::Worker::kTexts, detokenize);
}

Routes::IsKnown Routes::route(const HttpRequest& request, Responder& responder, RequestLog& log) {
  const RouteMatch match = route_of(request);
  switch (match.route) {
    case Route::kNone: co_return false;
    case Route::kChat:
    case Route::kCompletion:
      co_await chat(request, responder, log, match.route == Route::kChat);
      co_return true;
    case Route::kLorax: co_await lorax(request, responder, log); co_return true;
    case Route::kResponses: co_await responses(request, responder, log); co_return true;
    case Route::kMessages: co_await messages(request, responder, log); co_return true;
    case Route::kEmbeddings:
    case Route::kLoraxEmbed:
    case Route::kClassify:
    case Route::kScore:
    case Route::kRerank:
    case Route::kDecisions: co_await values(request, responder, log, match.route); co_return true;
    default: break;
  }
  HttpResponse response;
  if (shows_engine(match.route)) co_await service_.refresh();
  if (match.route == Route::kTokenize) {
    response = co_await tokenize(request, responder);
  } else if (match.route == Route::kDetokenize) {
    response = co_await detokenize(request, responder);
  } else if (match.route == Route::kCountTokens) {
    response = co_await count_tokens(request, responder);
  } else if (match.route == Route::kShowModel) {
    if (!service_.names().is_base(match.name)) check_adapter(log.key, match.name);
    response = co_await show_model(service_, match.name);
  } else if (match.route == Route::kExamples) {
    check_adapter(log.key, match.name);
    response = co_await adapter_examples(service_, match.name);
  } else if (is_admin_route(request)) {
    log.outcome = "admin";
    response = co_await answer_admin(request, match, responder);
  } else {
    response = facts(request, match, log.key);
  }
  co_await responder.send(std::move(response));
  co_return true;
}

/// Loads an adapter that the body brings.
net::awaitable<HttpResponse> Routes::load_body(const HttpRequest& request, Route route,
                                               Responder& responder) {
  const std::string query = request.query;
  const auto text = std::make_shared<std::string>(responder.take_body());
  const bool ignores_unknown = service_.options().ignore_unknown_fields;
  const auto read = [query, text, route, ignores_unknown] {
    return route == Route::kLoadTensors ? read_tensors(*text, ignores_unknown)
                                        : read_weights(query, std::move(*text));
  };
  const BroughtAdapter brought = co_await service_.run_on(Service::Worker::kLoads, read);
  co_return co_await load_content(service_, brought.load, brought.content);
}

net::awaitable<HttpResponse> Routes::answer_admin(const HttpRequest& request,
                                                  const RouteMatch& match, Responder& responder) {
  HttpResponse response;
  switch (match.route) {
    case Route::kUnloadAdapter:
      response = co_await unload_adapter(service_, unload_name(service_, request.body));
      break;
    case Route::kDeleteAdapter: response = co_await unload_adapter(service_, match.name); break;
    case Route::kLoadAdapter:
    case Route::kLoadTensors:
      if (brings_adapter(request)) {
        response = co_await load_body(request, match.route, responder);
      } else {
        response = co_await load_adapter(service_, request.body);
      }
      break;
    case Route::kListAdapters:
      co_return list_models(service_, [](const std::string& /*name*/) { return true; });
    case Route::kShowScales: co_return show_scales(service_);
    case Route::kSetScales: co_return set_scales(service_, request.body);
    case Route::kResetPrefixCache:
      service_.engine().reset_prefix_cache();
      co_return HttpResponse{.content_type = "text/plain"};
    default: throw no_such_route(request.path);
  }
  co_return success(std::move(response), request);
}

HttpResponse Routes::info() {
  const ModelInfo& model = service_.engine().model();
  const EngineOptions& options = service_.engine().options();
  return json_response(
      {{"model_id", service_.names().base()},
       {"model_device_type", options.device.substr(0, options.device.find(':'))},
       {"max_total_tokens", options.max_context},
       {"max_input_length", options.max_context - 1},
       {"max_concurrent_requests", options.max_batch + service_.options().max_waiting},
       {"max_stop_sequences", service_.options().limits.stop_strings},
       {"max_best_of", service_.options().limits.n},
       {"version", kVersion},
       {"architecture", model.architecture}});
}

HttpResponse Routes::metrics() {
  Metrics::Now now = service_.now();
  now.num_connections = num_connections_();
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = service_.metrics().text(now)};
}

HttpResponse Routes::health() const {
  const std::string reason = service_.refusal();
  if (!reason.empty()) return openai_error(unavailable(reason));
  return {.content_type = "text/plain"};
}

HttpResponse Routes::facts(const HttpRequest& request, const RouteMatch& match,
                           const std::string& key) {
  switch (match.route) {
    case Route::kHealth: return health();
    case Route::kMetrics: return metrics();
    case Route::kState: return page_state(service_);
    case Route::kVersion: return json_response(JsonObject{{"version", kVersion}});
    case Route::kInfo: return info();
    case Route::kListModels:
      return list_models(service_,
                         [&](const std::string& name) { return limits_.allows(key, name); });
    case Route::kShowResponse:
    case Route::kDeleteResponse: return stored_response(request, match);
    default: break;
  }
  if (auto file = page_file(request.path)) return std::move(*file);
  throw no_such_route(request.path);
}

}  // namespace heddle::serve
