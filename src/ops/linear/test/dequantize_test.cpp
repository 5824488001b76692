#include <algorithm>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear/test/linear_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Dequantize, GivesTheBitsOfThePackageGguf) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/fixtures/quant_blocks.txt");
  std::string type_name, stored_hex, values_hex;
  size_t formats = 0;
  for (; file >> type_name >> stored_hex >> values_hex; ++formats) {
    const WeightType* type = std::find_if(std::begin(kAllWeightTypes), std::end(kAllWeightTypes),
                                          [&](WeightType t) { return name(t) == type_name; });
    ASSERT_NE(type, std::end(kAllWeightTypes)) << type_name;
    const std::vector<std::byte> stored = from_hex(stored_hex), values = from_hex(values_hex);
    PoisonedBuffer<float> out(values.size() / 4);
    ASSERT_GT(out.size(), 0u);
    dequantize({out.data(), out.size()}, *type, stored);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::memcmp(&out[i], &values[4 * i], 4), 0) << type_name << " weight " << i;
    }
    EXPECT_TRUE(out.guards_intact());
  }
  EXPECT_EQ(formats, std::size(kAllWeightTypes));
}

TEST(Dequantize, GivesTheDefinitionOfRandomBlocks) {
  for (const WeightType type : kAllWeightTypes) {
    const int64_t n = 40 * block_size(type);
    const std::vector<std::byte> stored = random_stored(type, n, testing::rng());
    PoisonedBuffer<float> out(static_cast<size_t>(n));
    dequantize({out.data(), out.size()}, type, stored);
    for (int64_t i = 0; i < n; ++i) {
      const float want = ref::weight(type, stored.data(), i);
      ASSERT_EQ(std::memcmp(&out[size_t(i)], &want, 4), 0)
          << type << " weight " << i << ": " << out[size_t(i)] << ", expected " << want;
    }
    EXPECT_TRUE(out.guards_intact()) << type;
  }
}

TEST(Dequantize, TakesNoWeights) { EXPECT_NO_THROW(dequantize({}, WeightType::kQ4K, {})); }

TEST(Dequantize, NamesBothSizesOfAWrongCall) {
  std::vector<float> out(64);
  const std::vector<std::byte> stored(39);
  EXPECT_EQ(testing::message_of([&] { dequantize(out, WeightType::kQ4_1, stored); }),
            "dequantize: stored holds 39 bytes, expected 40 for 64 weights of type Q4_1");
  EXPECT_EQ(
      testing::message_of([&] { dequantize(std::span(out).first(33), WeightType::kQ8_0, stored); }),
      "33 weights of type Q8_0 are not a multiple of its block of 32");
}

TEST(WeightType, KnowsItsBlocks) {
  EXPECT_EQ(stored_bytes(WeightType::kF32, 7), 28u);
  EXPECT_EQ(stored_bytes(WeightType::kBF16, 7), 14u);
  EXPECT_EQ(stored_bytes(WeightType::kQ8_0, 64), 68u);
  EXPECT_EQ(stored_bytes(WeightType::kQ5_1, 64), 48u);
  EXPECT_EQ(stored_bytes(WeightType::kQ4K, 512), 288u);
  EXPECT_EQ(stored_bytes(WeightType::kQ6K, 256), 210u);
  EXPECT_EQ(block_size(WeightType::kF16), 1);
  EXPECT_EQ(block_size(WeightType::kQ5_0), 32);
  EXPECT_EQ(block_size(WeightType::kQ5K), 256);
}

}  // namespace
}  // namespace heddle
