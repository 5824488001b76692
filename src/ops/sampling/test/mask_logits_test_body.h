#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "mirror.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// Every logit, also NaN, keeps its bits or becomes -infinity, in a tensor of its own or in place.
inline void check_mask_logits(const ExecContext& ctx, Mirror& on, int64_t num_rows,
                              int64_t vocab_size, bool is_in_place) {
  const int64_t num_words = (vocab_size + 31) / 32, num_masks = random_int(1, 4);
  const int64_t stride = vocab_size + random_int(0, 5);
  const auto size = static_cast<size_t>(num_rows * stride);
  PoisonedBuffer<float> logits(size), apart(size);
  std::vector<int32_t> indices, masks;
  for (size_t i = 0; i < size; ++i) {
    logits[i] = static_cast<float>(random_int(-1000, 1000)) / 7.0f;
    if (random_int(0, 50) == 0) logits[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<float> before(&logits[0], &logits[0] + size);
  for (int64_t r = 0; r < num_rows; ++r) {
    indices.push_back(static_cast<int32_t>(random_int(-1, num_masks)));
  }
  for (int64_t i = 0; i < num_masks * num_words; ++i) {
    const int64_t kind = random_int(0, 3);
    masks.push_back(kind == 0   ? 0
                    : kind == 1 ? -1
                                : static_cast<int32_t>(
                                      random_int(-(int64_t{1} << 31), (int64_t{1} << 31) - 1)));
  }
  PoisonedBuffer<float>& out = is_in_place ? logits : apart;
  const auto rows = [&](PoisonedBuffer<float>& buffer) {
    return on(buffer.view({num_rows, stride})).narrow(1, 0, vocab_size);
  };
  const TensorView in = rows(logits);
  mask_logits(ctx, is_in_place ? in : rows(apart), in,
              on(ConstTensorView(host_view(indices.data(), {num_rows}))),
              on(ConstTensorView(host_view(masks.data(), {num_masks, num_words}))));
  on.back();
  EXPECT_TRUE(logits.guards_intact() && apart.guards_intact());
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t index = indices[size_t(r)];
    for (int64_t t = 0; t < vocab_size; ++t) {
      const auto at = static_cast<size_t>(r * stride + t);
      const bool has_mask = index >= 0 && index < num_masks;
      const bool is_allowed =
          !has_mask ||
          (static_cast<uint32_t>(masks[size_t(index * num_words + t / 32)]) >> (t % 32) & 1) != 0;
      const float expected = is_allowed ? before[at] : -std::numeric_limits<float>::infinity();
      ASSERT_EQ(std::memcmp(&out[at], &expected, sizeof(float)), 0)
          << "row " << r << ", token " << t;
    }
  }
}

inline void check_mask_logits(const ExecContext& ctx, Mirror& on) {
  for (const bool is_in_place : {false, true}) {
    for (const int64_t vocab_size : {1, 31, 32, 33, 2048, 5001}) {
      check_mask_logits(ctx, on, random_int(1, 9), vocab_size, is_in_place);
    }
  }
}

}  // namespace heddle::testing
