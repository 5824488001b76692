#include "byte_size.h"

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

TEST(ByteSize, IsANumberAndAUnit) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"1", 1},
      {"2000000", 2000000},
      {"12B", 12},
      {"3K", 3 * 1024},
      {"3k", 3 * 1024},
      {"3KiB", 3 * 1024},
      {"3KB", 3000},
      {"1500M", int64_t{1500} << 20},
      {"1500mb", 1500000000},
      {"8G", int64_t{8} << 30},
      {"8GiB", int64_t{8} << 30},
      {"8gb", 8000000000},
      {"2T", int64_t{2} << 40},
      {"9223372036854775807", INT64_MAX},
      {"8388607T", int64_t{8388607} << 40},
  };
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_byte_size(text), bytes) << text;
}

TEST(ByteSize, RefusesAllElse) {
  for (const char* text : {"", "0", "-1", "G", "1.5G", "8 G", " 8", "+8", "8x", "8Gi", "8GBB", "8P",
                           "0x8", "8KG", "9223372036854775808", "8388608T", "99999999999999G"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace heddle::app
