#include "routes/access.h"

#include <algorithm>
#include <array>

#include <boost/asio/ip/address.hpp>
#include <openssl/sha.h>

#include "api/api_error.h"
#include "routes/route.h"

namespace heddle::serve {
namespace {

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest digest_of(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

/// "Example.org.:8000" -> "example.org", "[::1]:8000" -> "::1": names without regard to case, and
/// to the dot of the root.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return std::string(host.substr(1, host.find(']') - 1));
  std::string name = lower_case(host.substr(0, host.find(':')));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpaces = " \t";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool is_open_route(const HttpRequest& head) {
  constexpr std::string_view kOpen[] = {"/version", "/metrics", "/"};
  const bool is_get = head.method == "GET";
  return is_health_route(head) ||
         (is_get && (std::ranges::find(kOpen, head.path) != std::end(kOpen) ||
                     head.path.starts_with("/page/")));
}

std::string_view bearer(const HttpRequest& head) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view value = head.header("Authorization");
  const bool is_bearer = lower_case(value.substr(0, kBearer.size())) == kBearer;
  return is_bearer ? trimmed(value.substr(kBearer.size())) : std::string_view();
}

/// The key as Anthropic's clients send it.
std::string_view api_key_header(const HttpRequest& head) {
  return trimmed(head.header("x-api-key"));
}

}  // namespace

Access::Access(const app::ServeOptions& options)
    : api_keys_(options.api_key_file, "--api-key-file", "key-"),
      admin_keys_(options.admin_key_file, "--admin-key-file", "admin-key-") {
  for (const std::string& host : options.allowed_hosts) hosts_.push_back(host_name(host));
  hosts_.emplace_back("localhost");
  for (const std::string& origin : options.cors_origins) origins_.push_back(lower_case(origin));
}

/// An address is what no page of another site can make a name of: only names are looked at.
bool Access::may_be_host(std::string_view host) const {
  const std::string name = host_name(host);
  boost::system::error_code no_address;
  static_cast<void>(boost::asio::ip::make_address(name, no_address));
  if (!no_address) return true;
  return std::ranges::any_of(hosts_,
                             [&](const std::string& each) { return each == "*" || each == name; });
}

bool Access::is_cors_origin(std::string_view origin) const {
  const std::string given = lower_case(origin);
  return std::ranges::any_of(origins_,
                             [&](const std::string& each) { return each == "*" || each == given; });
}

Headers Access::cors_headers(const HttpRequest& head) const {
  const std::string origin(head.header("Origin"));
  if (origin.empty() || !is_cors_origin(origin)) return {};
  return {{"Access-Control-Allow-Origin", origin},
          {"Access-Control-Expose-Headers",
           "X-Heddle-Ignored, X-Request-Id, Retry-After, x-ratelimit-limit-requests, "
           "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
           "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"},
          {"Vary", "Origin"}};
}

std::string Access::owner_of(const HttpRequest& head) {
  const std::string_view key = bearer(head).empty() ? api_key_header(head) : bearer(head);
  const Digest digest = digest_of(key);
  return {digest.begin(), digest.end()};
}

const KeyHolder* Access::holder_of(const HttpRequest& head) const {
  const KeyHolder* const holders[] = {api_keys_.find(bearer(head)),
                                      api_keys_.find(api_key_header(head)),
                                      admin_keys_.find(bearer(head))};
  const auto* const found =
      std::ranges::find_if(holders, [](const KeyHolder* each) { return each != nullptr; });
  return found == std::end(holders) ? nullptr : *found;
}

std::optional<HttpResponse> Access::check(const HttpRequest& head) const {
  if (const auto refused = refusal(head)) return error_for(head.path, *refused);
  if (head.method != "OPTIONS") return std::nullopt;
  HttpResponse response{.status = 204, .headers = cors_headers(head)};
  const bool is_cors = !response.headers.empty();
  const std::string methods = allowed_methods(head.path);
  if (!methods.empty()) response.headers.emplace_back("Allow", methods + ", OPTIONS");
  if (is_cors) {
    response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
    response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, *");
  }
  return response;
}

std::optional<ApiError> Access::refusal(const HttpRequest& head) const {
  const std::string_view host = head.header("Host"), origin = head.header("Origin");
  const bool is_probe = host.empty() && is_health_route(head);
  if (!is_probe && host.empty()) {
    return bad_request("the request has no Host header");
  }
  if (!is_probe && !may_be_host(host)) {
    return ApiError(
        403, "PermissionDeniedError",
        "the Host header is not one of this server's names; allow it with --allowed-host");
  }
  if (!origin.empty() && !is_cors_origin(origin)) {
    const size_t scheme = origin.find("://");
    const bool is_same = scheme != std::string_view::npos &&
                         lower_case(origin.substr(scheme + 3)) == lower_case(host);
    if (!is_same) {
      return ApiError(403, "PermissionDeniedError",
                      "pages from this origin may not use the server; allow it with --cors-origin");
    }
  }
  if (head.method == "OPTIONS") return std::nullopt;
  if (is_admin_route(head)) {
    if (!has_admin()) return ApiError(404, "NotFoundError", "there is no such route");
    if (admin_keys_.find(bearer(head)) == nullptr) {
      return ApiError(401, "AuthenticationError", "the admin key is missing or wrong");
    }
  } else if (!api_keys_.is_empty() && !is_open_route(head) && holder_of(head) == nullptr) {
    return ApiError(401, "AuthenticationError", "the API key is missing or wrong");
  }
  const Route route = route_of(head).route;
  // A reset takes no body, and its key is what no page of another site can send.
  const bool takes_body =
      head.method == "POST" && route != Route::kNone && route != Route::kResetPrefixCache;
  const bool may_be_weights = route == Route::kLoadAdapter;
  const bool is_weights = may_be_weights && brings_adapter(head);
  if (takes_body && !is_weights && media_type(head) != "application/json") {
    return ApiError(415, "UnsupportedMediaType",
                    may_be_weights ? "the Content-Type header must be application/json, or "
                                     "application/octet-stream with the weights of an adapter"
                                   : "the Content-Type header must be application/json");
  }
  return std::nullopt;
}

}  // namespace heddle::serve
