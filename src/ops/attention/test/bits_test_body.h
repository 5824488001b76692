#pragma once

// The promises about bits, on any device: a row depends on its query, the keys and values it sees
// and the options, and on nothing else.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "ops/attention/test/attention_cases.h"
#include "testing/small_sizes.h"

namespace heddle::testing {

inline HeadShape random_heads() {
  return {static_cast<int>(pick<int64_t>({1, 3, 7})), static_cast<int>(random_int(1, 3)),
          static_cast<int>(pick<int64_t>({64, 64, 72, 128, 200, 33}))};
}

inline std::vector<AttentionOptions> all_options(bool may_rotate = true) {
  AttentionOptions window, cap, rope;
  window.window_left = random_int(0, 90);
  cap.logits_soft_cap = 5.0f;
  if (may_rotate) rope.rope = RopeParams{.theta = 1e4, .rotary_dim = 32};
  if (small_sizes()) return {window, rope};
  return {AttentionOptions{}, window, cap, rope};
}

template <class T, class TKV = T>
std::vector<Sequence<T, TKV>> random_batch(const HeadShape& heads) {
  std::vector<Sequence<T, TKV>> batch;
  batch.push_back(random_sequence<T, TKV>(heads, 1, 150));  // a decode row
  batch.push_back(random_sequence<T, TKV>(heads, 70, 70));  // a whole prompt
  batch.push_back(random_sequence<T, TKV>(heads, 0, 10));
  batch.push_back(random_sequence<T, TKV>(heads, 37, 190));  // a later chunk
  batch.push_back(random_sequence<T, TKV>(heads, 1, 65));
  return batch;
}

/// Rows [begin, end) of a whole prompt, with the cache as it is when they are computed.
template <class T, class TKV>
Sequence<T, TKV> chunk(const HeadShape& heads, const Sequence<T, TKV>& prompt, int64_t begin,
                       int64_t end) {
  const int64_t q_row = heads.num_q_heads() * heads.head_dim;
  const int64_t kv_row = heads.num_kv_heads * heads.head_dim;
  return {end - begin,
          end,
          {prompt.q.begin() + begin * q_row, prompt.q.begin() + end * q_row},
          {prompt.k.begin(), prompt.k.begin() + end * kv_row},
          {prompt.v.begin(), prompt.v.begin() + end * kv_row}};
}

/// Each sequence alone, and all together in each of the settings.
template <class T, class TKV = T>
void expect_a_row_alone_is_the_row_in_a_batch(const Setting& alone,
                                              const std::vector<Setting>& together) {
  const HeadShape heads = random_heads();
  auto batch = random_batch<T, TKV>(heads);
  if (alone.decode) {
    batch.clear();
    for (const int64_t kv_len : {150, 1, 0, 65, 600}) {
      batch.push_back(random_sequence<T, TKV>(heads, 1, kv_len));
    }
  }
  for (const AttentionOptions& options : all_options(alone.can_rotate<TKV>())) {
    Attended<T> want;
    for (const auto& sequence : batch)
      want.append(attend<T, TKV>(heads, {sequence}, alone, options));
    for (const Setting& setting : together) {
      EXPECT_TRUE(attend(heads, batch, setting, options).same_bits_as(want));
    }
  }
}

template <class T, class TKV = T>
void expect_pages_do_not_show(const Setting& base) {
  const HeadShape heads = random_heads();
  std::vector<Sequence<T, TKV>> batch = random_batch<T, TKV>(heads);
  if (base.decode) batch = {batch.front(), batch.back()};
  for (const AttentionOptions& options : all_options(base.can_rotate<TKV>())) {
    const auto want = attend(heads, batch, base, options);
    for (const int page_size : small_or<std::vector<int>>({7, 16}, {1, 16, 64, 7, 200, 256})) {
      for (const PageLayout layout : {PageLayout::kTokenMajor, PageLayout::kPointers}) {
        Setting setting = base;
        setting.page_size = page_size;
        setting.layout = layout;
        if (page_size % 2 == 1) setting.scales = ScalePlace::kOwnPool;
        EXPECT_TRUE(attend(heads, batch, setting, options).same_bits_as(want));
      }
    }
  }
}

/// A prompt in chunks, and token by token in the setting `steps`.
template <class T, class TKV = T>
void expect_chunks_give_the_whole_prompt(const Setting& base, const Setting& steps) {
  const HeadShape heads = random_heads();
  const int64_t length = small_or<int64_t>(70, 140);
  const auto prompt = random_sequence<T, TKV>(heads, length, length);
  for (const AttentionOptions& options : all_options(base.can_rotate<TKV>())) {
    const auto at_once = attend<T, TKV>(heads, {prompt}, base, options);
    Attended<T> in_chunks, one_by_one;
    for (int64_t begin = 0; begin < prompt.q_len;) {
      const int64_t end = std::min(prompt.q_len, begin + random_int(1, 60));
      in_chunks.append(attend<T, TKV>(heads, {chunk(heads, prompt, begin, end)}, base, options));
      begin = end;
    }
    for (int64_t t = 0; t < small_or<int64_t>(2, prompt.q_len); ++t) {
      one_by_one.append(attend<T, TKV>(heads, {chunk(heads, prompt, t, t + 1)}, steps, options));
    }
    EXPECT_TRUE(in_chunks.same_bits_as(at_once));
    EXPECT_TRUE(
        one_by_one.same_bits_as(at_once.tokens(heads, 0, small_or<int64_t>(2, prompt.q_len))));
  }
}

/// What a row does not see must not reach it, however bad it is; and what it sees must.
template <class T, class TKV = T>
void expect_nan_reaches_the_rows_that_see_it_only(const Setting& base) {
  const HeadShape heads = random_heads();
  const auto clean = random_sequence<T, TKV>(heads, 100, 130);
  const int64_t bad = random_int(30, 129);  // a position
  const int64_t window = 20;
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    if (std::is_same_v<TKV, float8_e4m3> && std::isinf(poison)) continue;  // it has none
    auto dirty = clean;
    const int64_t kv_row = heads.num_kv_heads * heads.head_dim;
    for (int64_t i = bad * kv_row; i < (bad + 1) * kv_row; ++i) {
      dirty.v[size_t(i)] = from_float<TKV>(poison);
      dirty.k[size_t(i)] = from_float<TKV>(std::numeric_limits<float>::quiet_NaN());
    }
    for (AttentionOptions options : all_options(base.can_rotate<TKV>())) {
      options.window_left = window;
      const auto a = attend<T, TKV>(heads, {clean}, base, options);
      const auto b = attend<T, TKV>(heads, {dirty}, base, options);
      for (int64_t t = 0; t < 100; ++t) {
        const int64_t position = 30 + t;
        const auto row = b.tokens(heads, t, 1);
        if (position < bad || position > bad + window) {
          EXPECT_TRUE(row.same_bits_as(a.tokens(heads, t, 1))) << position << " " << bad;
        } else {
          EXPECT_NE(to_float(row.o[0]), to_float(row.o[0]));  // NaN
        }
      }
    }
  }
}

}  // namespace heddle::testing
