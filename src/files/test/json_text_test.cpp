#include "files/json_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "files/json_value.h"
#include "random.h"

namespace heddle::files {
namespace {

TEST(JsonText, WritesNumbersAsPythonDoes) {
  const std::pair<double, const char*> numbers[] = {{0.0, "0.0"},
                                                    {-0.0, "-0.0"},
                                                    {2.0, "2.0"},
                                                    {0.1, "0.1"},
                                                    {100.5, "100.5"},
                                                    {1e14, "100000000000000.0"},
                                                    {1e15, "1e+15"},
                                                    {1.5e300, "1.5e+300"},
                                                    {1e-4, "0.0001"},
                                                    {1.25e-5, "1.25e-05"},
                                                    {5e-324, "5e-324"},
                                                    {-123456.75, "-123456.75"},
                                                    {0.138050079345703125, "0.13805007934570312"}};
  for (const auto& [number, text] : numbers) EXPECT_EQ(json_text(number), text);
  EXPECT_EQ(json_text(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_text(std::nan("")), "null");
}

TEST(JsonText, NumbersReadBackToTheSameBits) {
  std::mt19937_64& random = testing::rng();
  for (int i = 0; i < 20000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const std::string text = json_text(number);
    EXPECT_EQ(std::bit_cast<uint64_t>(std::strtod(text.c_str(), nullptr)),
              std::bit_cast<uint64_t>(number))
        << text;
  }
}

TEST(JsonText, WritesStringsAsNlohmannDoes) {
  std::mt19937_64& random = testing::rng();
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    const auto size = random() % 8;
    for (uint64_t k = 0; k < size; ++k) {
      const uint64_t draw = random();
      bytes += static_cast<char>(draw % 3 == 0 ? draw >> 8 : 0x80 | (draw >> 8 & 0x7F));
    }
    using nlohmann::json;
    EXPECT_EQ(json_string(bytes), json(bytes).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  EXPECT_EQ(json_string("\xF0\x9F\x98"), "\"\uFFFD\"");
  EXPECT_EQ(json_string("a\"\\\n\t\b\f\r\x01\x7F/"), R"("a\"\\\n\t\b\f\r\u0001)"
                                                     "\x7F/\"");
}

TEST(JsonText, WritesMembersInTheirOrder) {
  const JsonObject object{{"b", 1},
                          {"a", {{"x", nullptr}, {"y", {true, 2.5, "z"}}}},
                          {"c", std::numeric_limits<uint64_t>::max()}};
  EXPECT_EQ(json_text(object),
            R"({"b":1,"a":{"x":null,"y":[true,2.5,"z"]},"c":18446744073709551615})");
  EXPECT_EQ(json_lines(JsonObject{{"a", 1}, {"b", "x"}}), "{\n \"a\": 1,\n \"b\": \"x\"\n}");
}

}  // namespace
}  // namespace heddle::files
