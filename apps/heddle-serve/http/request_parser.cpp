#include "http/request_parser.h"

#include <algorithm>

#include <boost/beast/http/error.hpp>

#include "api/api_error.h"
#include "http/head_scan.h"

namespace heddle::serve {
namespace {

namespace http = boost::beast::http;

constexpr uint32_t kHeaderBytes = HeadScan::kMostBytes;

/// "http://localhost:80/health" -> "localhost:80", and the target becomes "/health"; a target that
/// names no host stays.
std::string take_host(std::string_view& target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return {};
  target.remove_prefix(scheme + 3);
  const size_t end = std::min(target.find_first_of("/?"), target.size());
  const std::string host(target.substr(0, end));
  target.remove_prefix(end);
  return host;
}

}  // namespace

HttpResponse refusal(unsigned status, const std::string& message, const std::string& path) {
  return error_for(path, {status, "BadRequestError", message});
}

void set_limits(RequestParser& parser) {
  parser.header_limit(kHeaderBytes);
  parser.body_limit(boost::none);
}

bool limit_body(RequestParser& parser, const BodyLimit& limit) {
  parser.body_limit(limit.bytes);
  const auto length = parser.content_length();
  return !length || *length <= limit.bytes;
}

HttpRequest head_of(const RequestParser& parser) {
  const auto& message = parser.get();
  HttpRequest request;
  const bool is_head = message.method() == http::verb::head;
  request.method = is_head ? "GET" : std::string(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  const std::string host = take_host(target);
  const size_t mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (request.path.empty()) request.path = "/";
  if (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  if (!host.empty()) request.headers.emplace_back("Host", host);
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return request;
}

std::optional<HttpResponse> refusal_of(const boost::system::error_code& error,
                                       const BodyLimit& limit, const std::string& path) {
  if (error == http::error::header_limit) {
    return refusal(431, "the headers have more than " + std::to_string(kHeaderBytes) + " bytes",
                   path);
  }
  if (error == http::error::body_limit) {
    return refusal(
        413,
        "the body has more than " + std::to_string(limit.bytes) + " bytes (" + limit.option + ")",
        path);
  }
  const bool is_http =
      error.category() == http::make_error_code(http::error::bad_method).category();
  const bool has_gone =
      error == http::error::end_of_stream || error == http::error::partial_message;
  if (!is_http || has_gone) return std::nullopt;
  return refusal(400, "not a valid HTTP request: " + error.message(), path);
}

}  // namespace heddle::serve
