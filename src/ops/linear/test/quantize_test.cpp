#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/linear/test/linear_cases.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;

constexpr WeightType kMade[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
                                WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                WeightType::kQ5_0, WeightType::kQ5_1};

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> quantized(WeightType type, std::span<const float> values,
                                 const ExecContext& ctx = {}) {
  std::vector<std::byte> stored(stored_bytes(type, std::ssize(values)));
  quantize(ctx, stored, type, values);
  return stored;
}

TEST(Quantize, GivesTheBytesOfThePackageGguf) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/fixtures/quantized_values.txt");
  std::string type_name, stored_hex, values_hex;
  size_t formats = 0;
  for (; file >> type_name >> stored_hex >> values_hex; ++formats) {
    const WeightType* type =
        std::ranges::find(kMade, type_name, [](WeightType t) { return name(t); });
    ASSERT_NE(type, std::end(kMade)) << type_name;
    const std::vector<std::byte> want = bytes_of_hex(stored_hex), raw = bytes_of_hex(values_hex);
    std::vector<float> values(raw.size() / sizeof(float));
    std::memcpy(values.data(), raw.data(), raw.size());
    PoisonedBuffer<std::byte> stored(want.size());
    ASSERT_GT(stored.size(), 0u);
    quantize({}, {stored.data(), stored.size()}, *type, values);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(stored.data()[i], want[i]) << type_name << " byte " << i;
    }
    EXPECT_TRUE(stored.guards_intact());
  }
  EXPECT_EQ(formats, std::size(kMade));
}

TEST(Quantize, HasTheSameBytesOnThreads) {
  const std::vector<float> values = testing::random_normal<float>(32 * 5000);
  ThreadPool threads(3);
  ExecContext ctx;
  ctx.threads = &threads;
  for (const WeightType type : kMade) {
    EXPECT_EQ(quantized(type, values, ctx), quantized(type, values)) << type;
  }
}

/// A value is at most half a step from its code; in Q4_0 and Q5_0 the largest of the other sign,
/// for which there is no code, a whole step.
TEST(Quantize, IsNearTheValues) {
  std::vector<float> values = testing::random_normal<float>(32 * 64);
  for (float& value : values) value = std::clamp(value, -1.0f, 1.0f);
  for (const WeightType type : kMade) {
    if (block_size(type) == 1) continue;
    std::vector<float> back(values.size());
    dequantize(back, type, quantized(type, values));
    const double bits = type == WeightType::kQ8_0                                ? 8
                        : type == WeightType::kQ4_0 || type == WeightType::kQ4_1 ? 4
                                                                                 : 5;
    const bool is_centred = type == WeightType::kQ4_0 || type == WeightType::kQ5_0;
    const double step = 2.0 / (std::exp2(bits) - 2.0) * (is_centred ? 1.0 : 0.5) + 2e-3;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(back[i], values[i], step) << type << " weight " << i;
    }
  }
}

/// So small that a scale is 0 in f16, with 1 / d infinite in f32: the values become zeros.
TEST(Quantize, SmallestNumbersBecomeZeros) {
  std::vector<float> values(32, 1e-40f);
  values[3] = -std::numeric_limits<float>::denorm_min();
  for (const WeightType type : kMade) {
    if (block_size(type) == 1) continue;
    std::vector<float> back(values.size());
    dequantize(back, type, quantized(type, values));
    for (const float value : back) EXPECT_EQ(value, 0.0f) << type;
  }
}

TEST(Quantize, RefusesWhatIsNotFiniteOrWouldNotBe) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const WeightType type : kMade) {
    for (const float wrong : {kInfinity, -kInfinity, std::nanf("")}) {
      std::vector<float> values(96, 0.5f);
      values[40] = wrong;
      const std::string message = testing::message_of([&] { (void)quantized(type, values); });
      EXPECT_TRUE(message.starts_with("value 40 is ")) << message;
      EXPECT_TRUE(message.ends_with("expected a finite number")) << message;
    }
    std::vector<float> values(96, 0.5f);
    values[70] = 3e38f;
    if (type == WeightType::kF32 || type == WeightType::kBF16) {
      EXPECT_NO_THROW((void)quantized(type, values));
    } else {
      EXPECT_EQ(testing::message_of([&] { (void)quantized(type, values); }),
                "value 70 is 3e+38, which is out of the range of " + std::string(name(type)));
    }
    values[71] = -3e38f;  // the range is infinite in f32
    if (block_size(type) == 1) continue;
    EXPECT_THROW((void)quantized(type, values), Error) << type;
  }
}

TEST(Quantize, NamesTypesThatItDoesNotMakeAndWrongSizes) {
  std::vector<float> values(256);
  std::vector<std::byte> stored(144);
  testing::expect_unsupported({"quantize: type Q4_K is read but not made, supported: F32"},
                              [&] { quantize({}, stored, WeightType::kQ4K, values); });
  EXPECT_EQ(testing::message_of([&] { quantize({}, stored, WeightType::kQ8_0, values); }),
            "quantize: stored holds 144 bytes, expected 272 for 256 weights of type Q8_0");
  EXPECT_NO_THROW(quantize({}, {}, WeightType::kQ5_1, {}));
}

}  // namespace
}  // namespace heddle
