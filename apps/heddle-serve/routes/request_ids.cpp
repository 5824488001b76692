#include "routes/request_ids.h"

#include <algorithm>
#include <random>

namespace heddle::serve {
namespace {

constexpr size_t kLongestId = 128;

std::string random_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 24; ++i) id += kDigits[random() & 15];
  return id;
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Digits that are not all 0.
bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::string request_id_of(const HttpRequest& head) {
  const std::string_view given = head.header(kRequestIdHeader);
  const bool is_visible = std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  if (given.empty() || given.size() > kLongestId || !is_visible) return random_id();
  return std::string(given);
}

TraceParent trace_parent_of(std::string_view header) {
  // VERSION-TRACE-PARENT-FLAGS of 2, 32, 16 and 2 digits; later versions may have more after them.
  constexpr size_t kTrace = 3, kParent = 36, kFlags = 53, kLength = 55;
  if (header.size() < kLength) return {};
  const std::string_view version = header.substr(0, 2);
  const bool has_dashes =
      header[kTrace - 1] == '-' && header[kParent - 1] == '-' && header[kFlags - 1] == '-';
  const bool ends = header.size() == kLength || (version != "00" && header[kLength] == '-');
  const std::string_view trace = header.substr(kTrace, 32), parent = header.substr(kParent, 16);
  if (!has_dashes || !ends || !is_hex(version) || version == "ff") return {};
  if (!is_id(trace) || !is_id(parent) || !is_hex(header.substr(kFlags, 2))) return {};
  return {.trace_id = std::string(trace), .parent_id = std::string(parent)};
}

}  // namespace heddle::serve
