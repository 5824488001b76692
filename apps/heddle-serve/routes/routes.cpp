#include "routes/routes.h"

#include <array>
#include <random>

#include <boost/system/system_error.hpp>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "api/fields.h"
#include "api/lorax.h"
#include "api/openai_form.h"
#include "api/openai_request.h"
#include "api/token_json.h"
#include "generate/row_reader.h"
#include "routes/adapters.h"
#include "routes/log_line.h"
#include "routes/page.h"

namespace heddle::serve {
namespace {

using app::RowReader;
namespace net = boost::asio;

std::string random_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 24; ++i) id += kDigits[random() & 15];
  return id;
}

/// "%73ql" -> "sql"; what is no such code stays.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_code =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    if (is_code) {
      decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

constexpr size_t kLongBody = 64 << 10;  // bytes that are parsed beside this thread's work

/// The conversation as a template has rendered it.
Request as_text(Request chat, const std::string& text) {
  chat.messages.clear();
  for (std::string* field :
       {&chat.messages_json, &chat.tools_json, &chat.documents_json, &chat.template_kwargs_json})
    field->clear();
  chat.add_generation_prompt = true;
  chat.continue_final_message = false;
  chat.text = text;
  chat.add_special_tokens = chat.add_special_tokens.value_or(false);
  return chat;
}

HttpResponse json_response(const json& body) { return {.body = dumped(body)}; }

/// vLLM answers in plain text under /v1/, what has other names in JSON.
HttpResponse success(HttpResponse response, const HttpRequest& request) {
  const bool is_plain =
      request.path == "/v1/load_lora_adapter" || request.path == "/v1/unload_lora_adapter";
  if (is_plain) return response;
  return json_response({{"status", "success"}, {"message", response.body}});
}

ApiError not_done(const char* what) { return {501, "NotImplementedError", what}; }
ApiError no_such_route() { return {404, "NotFoundError", "there is no such route"}; }

json lorax_tokens(const std::string& prompt, const std::vector<int32_t>& ids,
                  const TokenTexts& texts) {
  json tokens = json::array();
  size_t place = 0;
  for (const int32_t id : ids) {
    const std::string_view text = texts.bytes(id);
    const bool is_inside = !texts.is_special(id) && prompt.compare(place, text.size(), text) == 0;
    tokens.push_back({{"id", id},
                      {"text", std::string(text)},
                      {"start", place},
                      {"stop", is_inside ? place + text.size() : place}});
    if (is_inside) place += text.size();
  }
  return tokens;
}

/// The request in LoRAX's form of a body for /tokenize.
Request read_inputs(json body, bool ignores_unknown) {
  constexpr auto kFields = std::to_array<std::string_view>({"inputs", "add_special_tokens"});
  check_fields(body, kFields, {}, ignores_unknown);
  const RowReader row(body, "request");
  Request request;
  request.text = row.required_text("inputs");
  request.add_special_tokens = row.flag("add_special_tokens", true);
  return request;
}

/// The tokens in a body for /detokenize, and which model's.
std::vector<int32_t> read_tokens(json body, bool ignores_unknown, ModelChoice& choice) {
  constexpr auto kFields = std::to_array<std::string_view>({"model", "adapter_id", "tokens"});
  check_fields(body, kFields, {}, ignores_unknown);
  const auto tokens = body.find("tokens");
  HEDDLE_CHECK(tokens != body.end() && tokens->is_array(), "tokens is missing, or no list of ids");
  std::vector<int32_t> ids;
  for (const json& id : *tokens) {
    HEDDLE_CHECK(id.is_number_unsigned() && id <= std::numeric_limits<int32_t>::max(),
                 "tokens holds ", id.dump(), ", expected token ids");
    ids.push_back(id.get<int32_t>());
  }
  const RowReader row(body, "request");
  if (const json* model = row.find("model")) choice.model = row.text("model", *model);
  if (const json* id = row.find("adapter_id")) choice.adapter_id = row.text("adapter_id", *id);
  return ids;
}

json token_list(const std::vector<int32_t>& ids, const TokenTexts& texts, int64_t max_context,
                bool with_texts) {
  json answer{{"count", ids.size()}, {"max_model_len", max_context}, {"tokens", ids}};
  json& strings = answer["token_strs"];
  if (!with_texts) return answer;
  strings = json::array();
  for (const int32_t id : ids) strings.push_back(std::string(texts.bytes(id)));
  return answer;
}

/// What the engine makes of the request's prompt, in its thread.
std::pair<std::vector<int32_t>, std::shared_ptr<const TokenTexts>> tokens_in(
    Engine& engine, const Request& request) {
  return {engine.tokenize(request), engine.token_texts(request.adapter)};
}

/// The route as a label of metrics: there are no more of these than routes, whatever is asked for.
const char* label_of(const std::string& path) {
  static constexpr const char* kRoutes[] = {"/v1/chat/completions",
                                            "/v1/completions",
                                            "/generate",
                                            "/generate_stream",
                                            "/",
                                            "/tokenize",
                                            "/detokenize",
                                            "/v1/models",
                                            "/v1/load_lora_adapter",
                                            "/v1/embeddings",
                                            "/v1/loras",
                                            "/v1/unload_lora_adapter"};
  const auto place =
      std::ranges::find(kRoutes, path, [](const char* route) { return std::string_view(route); });
  return place == std::end(kRoutes) ? "other" : *place;
}

bool is_lorax_route(const std::string& path) {
  return path == "/generate" || path == "/generate_stream" || path == "/";
}

}  // namespace

net::awaitable<void> Routes::handle(const HttpRequest& request, Responder& responder) {
  RequestLog log{.route = request.path, .id = random_id()};
  responder.set_headers(access_.cors_headers(request));
  std::optional<ApiError> failure;
  try {
    const bool is_known = co_await route(request, responder, log);
    if (!is_known) failure = no_such_route();
  } catch (const ApiError& error) {
    failure = error;
  } catch (const Error& error) {
    failure = bad_request(service_.names().without_folders(error.what()));
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
        is_lorax_route(request.path) ? lorax_error(*failure) : openai_error(*failure);
    co_await responder.send(std::move(response));
  }
  service_.metrics().count_request(label_of(request.path), log.status, log.times);
  write_log(log);
}

void Routes::resolve(Generation& generation, RequestLog& log) {
  for (Request& request : generation.prompts) service_.names().resolve(generation.choice, request);
  const Request& first = generation.prompts.front();
  log.adapter = first.adapters.empty() ? first.adapter : "several";
}

net::awaitable<void> Routes::chat(const HttpRequest& request, Responder& responder, RequestLog& log,
                                  bool is_chat) {
  const auto read = [&] {
    return is_chat ? read_chat(request.body, service_.options())
                   : read_completion(request.body, service_.options());
  };
  Generation generation;
  if (request.body.size() > kLongBody) {
    generation = co_await service_.beside(read);
  } else {
    generation = read();
  }
  if (!generation.chat_template.empty()) {
    Request& chat = generation.prompts.front();
    const auto render = [&] { return service_.engine().render(chat, generation.chat_template); };
    const std::string text = co_await service_.beside(render);
    chat = as_text(std::move(chat), text);
  }
  if (!generation.request_id.empty()) log.id = generation.request_id;
  resolve(generation, log);
  const std::string model = service_.names().told(generation.choice);
  const auto form =
      is_chat ? chat_form(generation, log.id, model) : completion_form(generation, log.id, model);
  co_await answer(service_, generation, *form, responder, log);
}

net::awaitable<void> Routes::lorax(const HttpRequest& request, Responder& responder,
                                   RequestLog& log) {
  LoraxGeneration lorax = read_lorax(request.body, service_.options());
  if (request.path == "/generate_stream") lorax.generation.stream = true;
  if (request.path == "/generate") lorax.generation.stream = false;
  resolve(lorax.generation, log);
  const auto form = lorax_form(lorax, request.path == "/");
  co_await answer(service_, lorax.generation, *form, responder, log);
}

net::awaitable<HttpResponse> Routes::tokenize(const std::string& body) {
  const bool ignores_unknown = service_.options().ignore_unknown_fields;
  json fields = parse_body(body);
  Generation generation;
  const bool is_lorax = fields.contains("inputs");
  if (is_lorax) {
    generation.prompts.push_back(read_inputs(std::move(fields), ignores_unknown));
  } else {
    generation = read_tokenize(body, service_.options());
  }
  Request& request = generation.prompts.front();
  service_.names().resolve(generation.choice, request);
  const auto body_of_call = [request](Engine& engine) { return tokens_in(engine, request); };
  const auto [ids, texts] = co_await service_.call(body_of_call);
  const int64_t context = service_.engine().options().max_context;
  co_return json_response(is_lorax ? lorax_tokens(*request.text, ids, *texts)
                                   : token_list(ids, *texts, context, generation.return_token_ids));
}

net::awaitable<HttpResponse> Routes::detokenize(const std::string& body) {
  ModelChoice choice;
  const std::vector<int32_t> ids =
      read_tokens(parse_body(body), service_.options().ignore_unknown_fields, choice);
  Request request;
  service_.names().resolve(choice, request);
  const auto body_of_call = [ids, adapter = request.adapter](Engine& engine) {
    return engine.detokenize(ids, adapter);
  };
  const std::string text = co_await service_.call(body_of_call);
  json answer;
  answer["prompt"] = text;
  co_return json_response(answer);
}

Routes::IsKnown Routes::route(const HttpRequest& request, Responder& responder, RequestLog& log) {
  const bool is_post = request.method == "POST";
  if (is_post && request.path == "/v1/chat/completions") {
    co_await chat(request, responder, log, true);
  } else if (is_post && request.path == "/v1/completions") {
    co_await chat(request, responder, log, false);
  } else if (is_post && is_lorax_route(request.path)) {
    co_await lorax(request, responder, log);
  } else if (is_post && request.path == "/tokenize") {
    HttpResponse response = co_await tokenize(request.body);
    co_await responder.send(std::move(response));
  } else if (is_post && request.path == "/detokenize") {
    HttpResponse response = co_await detokenize(request.body);
    co_await responder.send(std::move(response));
  } else if (is_post && request.path == "/v1/embeddings") {
    throw not_done("embeddings are not supported");
  } else if (is_admin_route(request)) {
    co_return co_await route_admin(request, responder, log);
  } else {
    HttpResponse response = facts(request);
    co_await responder.send(std::move(response));
  }
  co_return true;
}

Routes::IsKnown Routes::route_admin(const HttpRequest& request, Responder& responder,
                                    RequestLog& log) {
  constexpr std::string_view kOne = "/v1/loras/";
  const bool is_post = request.method == "POST";
  const bool unloads = request.path.ends_with("/unload_lora_adapter");
  log.outcome = "admin";
  HttpResponse response;
  if (is_post && unloads) {
    response = co_await unload_adapter(service_, unload_name(service_, request.body));
    response = success(std::move(response), request);
  } else if (is_post && !request.path.starts_with(kOne)) {
    response = co_await load_adapter(service_, request.body);
    response = success(std::move(response), request);
  } else if (request.method == "DELETE" && request.path.starts_with(kOne)) {
    const std::string name = percent_decoded(std::string_view(request.path).substr(kOne.size()));
    response = co_await unload_adapter(service_, name);
    response = success(std::move(response), request);
  } else if (request.method == "GET" && request.path == "/v1/loras") {
    response = list_models(service_);
  } else {
    co_return false;
  }
  co_await responder.send(std::move(response));
  co_return true;
}

HttpResponse Routes::info() {
  const ModelInfo& model = service_.engine().model();
  const EngineOptions& options = service_.engine().options();
  return json_response(
      {{"model_id", service_.names().base()},
       {"model_device_type", "cpu"},
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
  service_.refresh();
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = service_.metrics().text(now)};
}

HttpResponse Routes::health() const {
  if (service_.is_draining()) return openai_error(unavailable("the server is about to end"));
  return {.content_type = "text/plain"};
}

HttpResponse Routes::facts(const HttpRequest& request) {
  constexpr std::string_view kModel = "/v1/models/";
  const std::string& path = request.path;
  if (request.method != "GET") throw no_such_route();
  if (path == "/health" || path == "/startup" || path == "/ping") return health();
  if (path == "/metrics") return metrics();
  if (path == "/state") return page_state(service_);
  if (auto file = page_file(path)) return std::move(*file);
  if (path == "/version") return json_response({{"version", kVersion}});
  if (path == "/info") return info();
  if (path == "/v1/models") return list_models(service_);
  if (path.starts_with(kModel)) {
    return show_model(service_, percent_decoded(std::string_view(path).substr(kModel.size())));
  }
  throw no_such_route();
}

}  // namespace heddle::serve
