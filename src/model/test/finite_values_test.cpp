#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/test/fake_adapter.h"
#include "random.h"

namespace heddle::model {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FiniteValues, EveryPlaceOfAMatrixIsLookedAt) {
  for (const DType dtype : kTypes) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      const auto rank = testing::random_int(1, 9), width = testing::random_int(1, 300);
      const auto at = testing::random_int(0, rank * width - 1);
      const float value = testing::pick({kNan, -kNan, kInfinity, -kInfinity});
      FakeAdapter adapter;
      const bool in_a = testing::random_int(0, 1) == 0;
      adapter.add_pair(adapter.tensor("the A", dtype, rank, width, in_a ? at : -1, value),
                       adapter.tensor("the B", dtype, width, rank, in_a ? -1 : at, value));
      const auto columns = in_a ? width : rank;
      const std::string place =
          '[' + std::to_string(at / columns) + ", " + std::to_string(at % columns) + ']';
      testing::expect_invalid({"dir: tensor 'the ", in_a ? "A'" : "B'",
                               value == value ? "infinity" : "NaN", place.c_str()},
                              [&] { AdapterContents(adapter).check_finite(); });
    }
  }
}

TEST(FiniteValues, TheLargestValuesOfATypeAreFine) {
  for (const DType dtype : kTypes) {
    const float largest = dtype == DType::kFloat16    ? 65504.0f
                          : dtype == DType::kBFloat16 ? 3.3895314e38f
                                                      : std::numeric_limits<float>::max();
    for (const float value : {largest, -largest, 0.0f, -0.0f, 1e-7f}) {
      FakeAdapter adapter;
      adapter.add_pair(adapter.tensor("a", dtype, 3, 100, testing::random_int(0, 299), value),
                       adapter.tensor("b", dtype, 100, 3));
      EXPECT_NO_THROW(AdapterContents(adapter).check_finite());
    }
  }
}

TEST(FiniteValues, WhatAGpuRoundsToInfinityIsRefusedThere) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto check = [&](float value, std::optional<DType> rounded_to) {
      FakeAdapter adapter;
      adapter.add_pair(adapter.tensor("a", dtype, 3, 100, 104, value),
                       adapter.tensor("b", dtype, 100, 3));
      AdapterContents(adapter, rounded_to).check_finite();
    };
    EXPECT_NO_THROW(check(65280.0f, DType::kFloat16));
    EXPECT_NO_THROW(check(1e30f, DType::kBFloat16));
    EXPECT_NO_THROW(check(1e30f, {}));
    testing::expect_invalid({"dir: tensor 'a' has -65536 at [1, 4], which is out of range for f16"},
                            [&] { check(-65536.0f, DType::kFloat16); });
  }
}

TEST(FiniteValues, EveryTensorOfAnAdapterIsLookedAt) {
  const auto refused = [](const char* name, const auto& spoil) {
    FakeAdapter adapter;
    AdapterPair& pair = adapter.add_pair(adapter.tensor("a", DType::kFloat16, 2, 4),
                                         adapter.tensor("b", DType::kFloat16, 4, 2));
    EXPECT_NO_THROW(AdapterContents(adapter).check_finite());
    spoil(adapter, pair, adapter.tensor(name, DType::kFloat32, 1, 4, 3, kNan));
    testing::expect_invalid({"dir: tensor '", name, "' has NaN at [0, 3]"},
                            [&] { AdapterContents(adapter).check_finite(); });
  };
  refused("magnitude", [](auto&, AdapterPair& pair, StoredValues v) { pair.magnitude = v; });
  refused("bias", [](auto&, AdapterPair& pair, StoredValues v) { pair.bias = v; });
  refused("layer_bias", [](auto&, AdapterPair& pair, StoredValues v) { pair.layer_bias = v; });
  refused("embedding", [](auto& a, auto&, StoredValues v) { a.of_embedding().weight = v; });
  refused("head", [](auto& a, auto&, StoredValues v) { a.of_head().weight = v; });
  refused("score", [](auto& a, auto&, StoredValues v) { a.of_score() = v; });
  refused("score bias", [](auto& a, auto&, StoredValues v) { a.of_score_bias() = v; });
  refused("rows", [](auto& a, auto&, StoredValues v) { a.of_embedding().token_rows = v; });
  refused("of the head", [](auto& a, AdapterPair& pair, StoredValues v) {
    a.of_head().pair = pair;
    a.of_head().pair->magnitude = v;
  });
}

}  // namespace
}  // namespace heddle::model
