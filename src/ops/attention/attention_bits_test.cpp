// The promises about bits: a row depends on its query, the keys and values it sees and the options, and on nothing else.

#include <limits>

#include <gtest/gtest.h>

#include "attention_cases.h"
#include "isa.h"

namespace heddle {
namespace {

using testing::Attended;
using testing::HeadShape;
using testing::PageLayout;
using testing::pick;
using testing::random_int;
using testing::Sequence;
using testing::Setting;

template <class T>
class AttentionBits : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(AttentionBits, Types);

HeadShape random_heads() {
  return {static_cast<int>(pick<int64_t>({1, 3, 7})), static_cast<int>(random_int(1, 3)),
          static_cast<int>(pick<int64_t>({64, 64, 72, 128, 200, 33}))};
}

std::vector<AttentionOptions> all_options() {
  AttentionOptions window, cap, rope;
  window.window_left = random_int(0, 90);
  cap.logits_soft_cap = 5.0f;
  rope.rope = RopeParams{.theta = 1e4, .rotary_dim = 32};
  return {AttentionOptions{}, window, cap, rope};
}

template <class T>
std::vector<Sequence<T, T>> random_batch(const HeadShape& heads) {
  std::vector<Sequence<T, T>> batch;
  batch.push_back(testing::random_sequence<T, T>(heads, 1, 150));  // a decode row
  batch.push_back(testing::random_sequence<T, T>(heads, 70, 70));  // a whole prompt
  batch.push_back(testing::random_sequence<T, T>(heads, 0, 10));
  batch.push_back(testing::random_sequence<T, T>(heads, 37, 190));  // a later chunk
  batch.push_back(testing::random_sequence<T, T>(heads, 1, 65));
  return batch;
}

TYPED_TEST(AttentionBits, RowAloneIsRowInABatchOnAnyThreads) {
  ThreadPool two(2), three(3);
  const HeadShape heads = random_heads();
  const auto batch = random_batch<TypeParam>(heads);
  for (const AttentionOptions& options : all_options()) {
    Attended<TypeParam> alone;
    for (const auto& sequence : batch) {
      alone.append(testing::attend<TypeParam, TypeParam>(heads, {sequence}, {}, options));
    }
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &two, &three}) {
      const auto together = testing::attend(heads, batch, {.threads = threads}, options);
      EXPECT_TRUE(together.same_bits_as(alone));
    }
  }
}

TYPED_TEST(AttentionBits, PagesDoNotShow) {
  const HeadShape heads = random_heads();
  const auto batch = random_batch<TypeParam>(heads);
  for (const AttentionOptions& options : all_options()) {
    const auto want = testing::attend(heads, batch, {}, options);
    for (const int page_size : {1, 16, 64, 7, 200}) {
      for (const PageLayout layout : {PageLayout::kTokenMajor, PageLayout::kPointers}) {
        const Setting setting{.page_size = page_size, .layout = layout};
        EXPECT_TRUE(testing::attend(heads, batch, setting, options).same_bits_as(want));
      }
    }
  }
}

/// Rows [begin, end) of a whole prompt, with the cache as it is when they are computed.
template <class T>
Sequence<T, T> chunk(const HeadShape& heads, const Sequence<T, T>& prompt, int64_t begin,
                     int64_t end) {
  const int64_t q_row = heads.num_q_heads() * heads.head_dim;
  const int64_t kv_row = heads.num_kv_heads * heads.head_dim;
  return {end - begin,
          end,
          {prompt.q.begin() + begin * q_row, prompt.q.begin() + end * q_row},
          {prompt.k.begin(), prompt.k.begin() + end * kv_row},
          {prompt.v.begin(), prompt.v.begin() + end * kv_row}};
}

TYPED_TEST(AttentionBits, ChunksAndDecodeStepsGiveTheWholePrompt) {
  const HeadShape heads = random_heads();
  const auto prompt = testing::random_sequence<TypeParam, TypeParam>(heads, 140, 140);
  for (const AttentionOptions& options : all_options()) {
    const auto at_once = testing::attend<TypeParam, TypeParam>(heads, {prompt}, {}, options);
    Attended<TypeParam> in_chunks, one_by_one;
    for (int64_t begin = 0; begin < prompt.q_len;) {
      const int64_t end = std::min(prompt.q_len, begin + random_int(1, 60));
      in_chunks.append(testing::attend<TypeParam, TypeParam>(
          heads, {chunk(heads, prompt, begin, end)}, {}, options));
      begin = end;
    }
    for (int64_t t = 0; t < prompt.q_len; ++t) {
      const Setting decode{.decode = true};
      one_by_one.append(testing::attend<TypeParam, TypeParam>(
          heads, {chunk(heads, prompt, t, t + 1)}, decode, options));
    }
    EXPECT_TRUE(in_chunks.same_bits_as(at_once));
    EXPECT_TRUE(one_by_one.same_bits_as(at_once));
  }
}

TYPED_TEST(AttentionBits, TargetsWithFusedMultiplyAddAreEqual) {
  const HeadShape heads = random_heads();
  const auto batch = random_batch<TypeParam>(heads);
  for (const AttentionOptions& options : all_options()) {
    std::vector<Attended<TypeParam>> results;
    for (const int64_t target : testing::cpu_targets()) {
      if (!testing::has_fused_multiply_add(target)) continue;
      const testing::ScopedCpuTarget scope(target);
      results.push_back(testing::attend(heads, batch, {}, options));
      EXPECT_TRUE(results.back().same_bits_as(results.front()));
    }
  }
}

// What a row does not see must not reach it, however bad it is; and what it sees must.
TYPED_TEST(AttentionBits, NaNReachesTheRowsThatSeeItOnly) {
  const HeadShape heads = random_heads();
  const auto clean = testing::random_sequence<TypeParam, TypeParam>(heads, 100, 130);
  const int64_t bad = random_int(30, 129);  // a position
  const int64_t window = 20;
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto dirty = clean;
    const int64_t kv_row = heads.num_kv_heads * heads.head_dim;
    for (int64_t i = bad * kv_row; i < (bad + 1) * kv_row; ++i) {
      dirty.v[size_t(i)] = from_float<TypeParam>(poison);
      dirty.k[size_t(i)] = from_float<TypeParam>(std::numeric_limits<float>::quiet_NaN());
    }
    for (AttentionOptions options : all_options()) {
      options.window_left = window;
      const auto a = testing::attend<TypeParam, TypeParam>(heads, {clean}, {}, options);
      const auto b = testing::attend<TypeParam, TypeParam>(heads, {dirty}, {}, options);
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

}  // namespace
}  // namespace heddle
