#include "http/request_parser.h"

#include <boost/beast/http/error.hpp>

namespace heddle::serve {
namespace {

namespace http = boost::beast::http;

constexpr uint32_t kHeaderBytes = 16 << 10;

/// OpenAI's form of an error, for requests that no route has seen.
HttpResponse wrong(unsigned status, const std::string& message) {
  return {.status = status,
          .body = R"({"error":{"message":")" + message +
                  R"(","type":"BadRequestError","param":null,"code":)" + std::to_string(status) +
                  "}}"};
}

}  // namespace

void set_limits(RequestParser& parser, uint64_t body_bytes) {
  parser.header_limit(kHeaderBytes);
  parser.body_limit(body_bytes);
}

HttpRequest head_of(const RequestParser& parser) {
  const auto& message = parser.get();
  HttpRequest request;
  const bool is_head = message.method() == http::verb::head;
  request.method = is_head ? "GET" : std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const size_t mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return request;
}

std::optional<HttpResponse> refusal_of(const boost::system::error_code& error,
                                       uint64_t body_bytes) {
  if (error == http::error::header_limit) {
    return wrong(431, "the headers have more than " + std::to_string(kHeaderBytes) + " bytes");
  }
  if (error == http::error::body_limit) {
    return wrong(413,
                 "the body has more than " + std::to_string(body_bytes) + " bytes (--max-body)");
  }
  const bool is_http =
      error.category() == http::make_error_code(http::error::bad_method).category();
  const bool has_gone =
      error == http::error::end_of_stream || error == http::error::partial_message;
  if (!is_http || has_gone) return std::nullopt;
  return wrong(400, "not a valid HTTP request: " + error.message());
}

}  // namespace heddle::serve
