#include "byte_size.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <string>

namespace heddle::app {
namespace {

/// Bytes of one unit; nothing for a text that is none.
std::optional<int64_t> bytes_of_unit(std::string unit) {
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::toupper(c); });
  if (unit.empty() || unit == "B") return 1;
  const size_t power = std::string_view("KMGT").find(unit.front());
  const std::string_view rest = std::string_view(unit).substr(1);
  if (power == std::string_view::npos) return std::nullopt;
  if (!rest.empty() && rest != "B" && rest != "IB") return std::nullopt;
  int64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= rest == "B" ? 1000 : 1024;
  return bytes;
}

}  // namespace

std::optional<int64_t> parse_byte_size(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  const auto unit = bytes_of_unit({end, text.data() + text.size()});
  if (!unit || number > std::numeric_limits<int64_t>::max() / *unit) return std::nullopt;
  return number * *unit;
}

}  // namespace heddle::app
