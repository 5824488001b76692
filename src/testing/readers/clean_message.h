#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "small_sizes.h"

namespace heddle::testing {

/// Up to `size` bytes that must not reach a terminal as they are: escape codes, line ends, controls
/// of one and of two bytes, U+2028 and what turns the direction of text. Where sizes are small they
/// are at most 64 KiB, still far more than a message may have.
inline std::string hostile_text(size_t size) {
  constexpr std::string_view kUnit = "\x1b[31mred\r\n\t\b\x7f\xc2\x9b\xe2\x80\xa8\xe2\x80\xae";
  size = std::min(size, small_or(size_t{64} << 10, size));
  std::string text;
  while (text.size() + kUnit.size() <= size) text += kUnit;
  return text;
}

/// Expects `run` to throw a heddle::Error whose text is one printable line of at most 1000 bytes.
template <class Run>
void expect_clean_message(const std::string& what, const Run& run) {
  const std::string message = message_of(run);
  EXPECT_NE(message, "no error") << what;
  EXPECT_LE(message.size(), 1000u) << what;
  bool printable = true;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    printable &= byte >= 0x20 && byte != 0x7f && byte < 0xf5 && byte != 0xc0 && byte != 0xc1;
  }
  for (const char* turned : {"\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae"}) {
    printable &= message.find(turned) == std::string::npos;
  }
  EXPECT_TRUE(printable) << what << ": " << ::testing::PrintToString(message.substr(0, 300));
}

}  // namespace heddle::testing
