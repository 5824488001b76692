#include "http/message.h"

#include <algorithm>

namespace heddle::serve {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto is_name = [name](const auto& header) {
    return std::ranges::equal(header.first, name, {}, lower, lower);
  };
  const auto place = std::ranges::find_if(headers, is_name);
  return place == headers.end() ? std::string_view() : std::string_view(place->second);
}

}  // namespace heddle::serve
