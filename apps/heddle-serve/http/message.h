#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// The text with its ASCII letters in lower case.
[[nodiscard]] std::string lower_case(std::string_view text);

/// How long the body of a request may be, and the option that says so.
struct BodyLimit {
  uint64_t bytes = 0;
  const char* option = "";
};

/// A request as it came: the method in capitals, the target before and after its '?', a path other
/// than "/" without the slash that ends it.
struct HttpRequest {
  std::string method, path, query;
  Headers headers{};
  std::string body{};
  std::string client{};  // the address that the connection comes from; empty: it is not known

  /// The header's value, whatever its letters' case; empty: it is not there.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body{};
  Headers headers{};
};

}  // namespace heddle::serve
