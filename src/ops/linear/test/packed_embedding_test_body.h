#pragma once

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "mirror.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear/test/linear_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// Every second id is read.
template <class Id>
std::vector<Id> random_ids(int64_t tokens, int64_t vocab) {
  std::vector<Id> ids(size_t(2 * tokens), Id{-7});
  for (size_t t = 0; t < size_t(tokens); ++t)
    ids[2 * t] = static_cast<Id>(random_int(-2, vocab + 1));
  ids[0] = Id{-1};
  ids[2] = static_cast<Id>(vocab);
  ids[4] = static_cast<Id>(vocab - 1);
  if constexpr (sizeof(Id) == 8) ids[6] = Id{1} << 32;  // no token, though its lower half is one
  return ids;
}

template <class Id, class T>
void expect_packed_embedding(const ExecContext& ctx, Mirror& mirror, WeightType type) {
  constexpr int64_t kVocab = 37, kTokens = 21, kGap = 4;
  const int64_t width = block_size(type) == 1 ? random_int(1, 70) : 5 * block_size(type);
  const std::vector<std::byte> stored = random_stored(type, kVocab * width, rng());
  const OwnedWeight weight(ExecContext{}, type, kVocab, width, stored);
  const auto ids = random_ids<Id>(kTokens, kVocab);
  const ConstTensorView id_view(reinterpret_cast<const std::byte*>(ids.data()), kDType<Id>,
                                Device{}, std::vector<int64_t>{kTokens}, std::vector<int64_t>{2});
  PoisonedBuffer<T> y(static_cast<size_t>(kTokens * (width + kGap)));
  PackedWeight there = weight.view();
  there.data = mirror(weight.bytes());
  embedding(ctx, mirror(y.view({kTokens, width + kGap}).narrow(1, 0, width)), mirror(id_view),
            there);
  mirror.back();
  for (int64_t t = 0; t < kTokens; ++t) {
    const int64_t id = ids[size_t(2 * t)];
    for (int64_t i = 0; i < width + kGap; ++i) {
      const auto at = static_cast<size_t>(t * (width + kGap) + i);
      if (i >= width) {
        ASSERT_TRUE(y.untouched(at));
        continue;
      }
      const T want = from_float<T>(
          id < 0 || id >= kVocab ? 0.0f : ref::weight(type, stored.data(), id * width + i));
      ASSERT_EQ(std::memcmp(&y[at], &want, sizeof(T)), 0)
          << type << " token " << t << " id " << id << " element " << i;
    }
  }
  EXPECT_TRUE(y.guards_intact());
}

inline void expect_packed_embedding(const ExecContext& ctx, Mirror& mirror) {
  for (const WeightType type : kAllWeightTypes) {
    expect_packed_embedding<int32_t, float>(ctx, mirror, type);
    expect_packed_embedding<int64_t, bfloat16>(ctx, mirror, type);
    expect_packed_embedding<int32_t, half>(ctx, mirror, type);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace heddle::testing
