#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "heddle/engine/request.h"

#include "http/message.h"

namespace heddle::serve {

/// What is wrong with a request, as its client reads it.
class ApiError : public std::runtime_error {
 public:
  ApiError(unsigned status, std::string type, const std::string& message, std::string param = {})
      : std::runtime_error(message),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)) {}

  [[nodiscard]] unsigned status() const { return status_; }
  [[nodiscard]] const std::string& type() const { return type_; }
  /// The field that is wrong; empty: none alone is.
  [[nodiscard]] const std::string& param() const { return param_; }
  /// 400 as vLLM has it of what loads adapters.
  [[nodiscard]] ApiError invalid_input(const std::string& message, const char* param);
  /// The methods that the route has instead; empty: it is not about that.
  [[nodiscard]] const std::string& methods() const { return methods_; }
  /// After which the client may try again; 0: that is not known.
  [[nodiscard]] int64_t retry_seconds() const { return retry_seconds_; }

 private:
  friend ApiError method_not_allowed(const std::string& methods);
  friend ApiError overloaded(const std::string& message, int64_t retry_seconds);

  unsigned status_;
  std::string type_, param_, methods_;
  int64_t retry_seconds_ = 0;
};

[[nodiscard]] ApiError bad_request(const std::string& message, const std::string& param = {});
/// 400 as vLLM has it of what loads adapters.
[[nodiscard]] ApiError invalid_input(const std::string& message, const char* param);
/// "The model `x` does not exist."
[[nodiscard]] ApiError no_such_model(const std::string& name);
/// 405; `methods` as the header Allow lists them.
[[nodiscard]] ApiError method_not_allowed(const std::string& methods);
/// 429 with Retry-After.
[[nodiscard]] ApiError overloaded(const std::string& message, int64_t retry_seconds = 1);
[[nodiscard]] ApiError unavailable(const std::string& message);
/// What the engine has refused, or could not end.
[[nodiscard]] ApiError engine_error(RequestError error, const std::string& message);

/// {"error": {"message", "type", "param", "code"}} as OpenAI and vLLM have it.
[[nodiscard]] HttpResponse openai_error(const ApiError& error);
/// The body of it.
[[nodiscard]] std::string openai_error_json(const ApiError& error);
/// {"error", "error_type"} with the status that LoRAX has for it.
[[nodiscard]] HttpResponse lorax_error(const ApiError& error);
/// {"type": "error", "error": {"type", "message"}} as Anthropic has it.
[[nodiscard]] HttpResponse anthropic_error(const ApiError& error);
/// The body of it.
[[nodiscard]] std::string anthropic_error_json(const ApiError& error);
/// That of Anthropic for its API's paths, of OpenAI for others.
[[nodiscard]] HttpResponse error_for(const std::string& path, const ApiError& error);

}  // namespace heddle::serve
