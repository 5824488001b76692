#include "api/api_error.h"

#include <utility>

#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::serve {
namespace {

using files::Json;
using files::JsonObject;

HttpResponse with_headers(HttpResponse response, const ApiError& error) {
  if (error.retry_seconds() > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_seconds()));
  }
  if (!error.methods().empty()) response.headers.emplace_back("Allow", error.methods());
  return response;
}

const char* anthropic_type(unsigned status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError invalid_input(const std::string& message, const char* param) {
  return {400, "InvalidUserInput", message, param};
}

ApiError bad_request(const std::string& message, const std::string& param) {
  return {400, "BadRequestError", message, param};
}

ApiError no_such_model(const std::string& name) {
  return {404, "NotFoundError", "The model `" + name + "` does not exist.", "model"};
}

ApiError method_not_allowed(const std::string& methods) {
  ApiError error(405, "MethodNotAllowed", "method not allowed; this path accepts " + methods);
  error.methods_ = methods;
  return error;
}

ApiError overloaded(const std::string& message, int64_t retry_seconds) {
  ApiError error(429, "RateLimitError", message);
  error.retry_seconds_ = retry_seconds;
  return error;
}

ApiError unavailable(const std::string& message) {
  return {503, "ServiceUnavailableError", message};
}

ApiError engine_error(RequestError error, const std::string& message) {
  switch (error) {
    case RequestError::kNone:
    case RequestError::kInvalidArgument:
    case RequestError::kUnsupported: break;
    case RequestError::kUnknownAdapter: return {404, "NotFoundError", message, "model"};
    case RequestError::kOutOfMemory:
    case RequestError::kEngineEnded: return unavailable(message);
    case RequestError::kNotFinite: return {500, "InternalServerError", message};
  }
  return bad_request(message);
}

std::string openai_error_json(const ApiError& error) {
  JsonObject body;
  body["error"] = {{"message", error.what()},
                   {"type", error.type()},
                   {"param", error.param().empty() ? Json() : Json(error.param())},
                   {"code", error.status()}};
  return files::json_text(body);
}

HttpResponse openai_error(const ApiError& error) {
  return with_headers({.status = error.status(), .body = openai_error_json(error)}, error);
}

std::string anthropic_error_json(const ApiError& error) {
  const JsonObject inner{{"type", anthropic_type(error.status())}, {"message", error.what()}};
  return files::json_text(JsonObject{{"type", "error"}, {"error", inner}});
}

HttpResponse anthropic_error(const ApiError& error) {
  return with_headers({.status = error.status(), .body = anthropic_error_json(error)}, error);
}

HttpResponse error_for(const std::string& path, const ApiError& error) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool is_anthropic = path == kMessages || path.starts_with(std::string(kMessages) + "/");
  return is_anthropic ? anthropic_error(error) : openai_error(error);
}

HttpResponse lorax_error(const ApiError& error) {
  const char* type = "validation";
  unsigned status = 422;
  switch (error.status()) {
    case 401:
    case 404:
    case 405: status = error.status(); break;
    case 429: type = "overloaded", status = 429; break;
    case 503: type = "healthcheck", status = 503; break;
    case 424: type = "generation", status = 424; break;
    case 500: type = "incomplete_generation", status = 500; break;
    default: break;
  }
  HttpResponse response{.status = status};
  response.body = files::json_text(JsonObject{{"error", error.what()}, {"error_type", type}});
  return with_headers(std::move(response), error);
}

}  // namespace heddle::serve
