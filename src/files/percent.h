#pragma once

#include <string>
#include <string_view>

namespace heddle::files {

/// The text of a URL with "%73" as "s" and so on; what is no such code stays.
[[nodiscard]] inline std::string percent_decoded(std::string_view text) {
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

/// The text as a part of a URL: all but letters and digits of ASCII and "-._~" as "%2F" and so on.
[[nodiscard]] inline std::string percent_encoded(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr std::string_view kSigns = "-._~";
  std::string encoded;
  for (const char c : text) {
    const char lower = static_cast<char>(c | 0x20);
    const bool is_plain = (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') ||
                          kSigns.find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain) {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace heddle::files
