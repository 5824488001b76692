#include "model/decoder/step_batch.h"

#include <numeric>

#include <gtest/gtest.h>

namespace heddle::model {
namespace {

std::vector<int32_t> counted(int64_t n, int32_t first) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

void expect_equal(const ConstTensorView& got, const std::vector<int32_t>& want) {
  ASSERT_EQ(got.num_elements(), std::ssize(want));
  EXPECT_EQ(std::vector<int32_t>(got.data<int32_t>(), got.data<int32_t>() + want.size()), want);
}

/// A step at its limits fits the memory reserved for it, each array in its own part.
TEST(StepInputs, HoldTheLargestStep) {
  const std::vector<int32_t> more = counted(33, 12000);
  for (StepLimits limits :
       {StepLimits{100, 3, 40, 2}, {1, 1, 1, 1}, {17, 16, 33, 16}, {100, 3, 40, 2, 7}}) {
    limits.more_bytes = StagedArrays::bytes_for<int32_t>(std::ssize(more));
    StepBatch batch;
    batch.token_ids = counted(limits.num_tokens, 1000);
    batch.positions = counted(limits.num_tokens, 2000);
    batch.slot_ids = counted(limits.num_tokens, 3000);
    batch.q_indptr = counted(limits.num_seqs + 1, 4000);
    batch.page_indptr = counted(limits.num_seqs + 1, 5000);
    batch.pages = counted(limits.num_pages, 6000);
    batch.last_page_len = counted(limits.num_seqs, 7000);
    batch.logit_tokens = counted(limits.num_logit_rows, 8000);
    batch.sources = counted(limits.num_tokens, 11000);
    if (limits.max_pairs > 0) {
      batch.pair_starts = counted(limits.num_tokens + 1, 9000);
      batch.pair_slots = counted(limits.num_tokens * limits.max_pairs, 10000);
      batch.pair_scales.assign(batch.pair_slots.size(), 0.5f);
      batch.max_pairs = limits.max_pairs;
    }
    EXPECT_EQ(batch.num_tokens(), limits.num_tokens);
    EXPECT_EQ(batch.num_seqs(), limits.num_seqs);
    StagedArrays arrays({}, StepInputs::bytes_for(limits));
    ConstTensorView added;
    const StepInputs inputs = StepInputs::copy({}, batch, arrays, limits,
                                               [&](StagedArrays& all) { added = all.add(more); });
    expect_equal(added, more);
    expect_equal(inputs.token_ids, batch.token_ids);
    expect_equal(inputs.positions, batch.positions);
    expect_equal(inputs.sources, batch.sources);
    if (limits.max_pairs == 0) {
      expect_equal(inputs.adapters.slot_ids, batch.slot_ids);
      EXPECT_FALSE(inputs.adapters.pair_starts);
    } else {
      expect_equal(inputs.adapters.pair_starts, batch.pair_starts);
      expect_equal(inputs.adapters.pair_slots, batch.pair_slots);
      EXPECT_EQ(inputs.adapters.pair_scales.data<float>()[batch.pair_slots.size() - 1], 0.5f);
      EXPECT_EQ(inputs.adapters.max_pairs, limits.max_pairs);
    }
    expect_equal(inputs.q_indptr, batch.q_indptr);
    expect_equal(inputs.logit_tokens, batch.logit_tokens);
    expect_equal(inputs.pages.page_indptr, batch.page_indptr);
    expect_equal(inputs.pages.pages, batch.pages);
    expect_equal(inputs.pages.last_page_len, batch.last_page_len);
    batch.clear();
    EXPECT_EQ(batch.num_tokens() + batch.num_seqs() + std::ssize(batch.pages) +
                  std::ssize(batch.q_indptr) + std::ssize(batch.page_indptr) +
                  std::ssize(batch.logit_tokens) + std::ssize(batch.slot_ids) +
                  std::ssize(batch.positions) + std::ssize(batch.sources) +
                  std::ssize(batch.pair_starts) + std::ssize(batch.pair_slots) +
                  std::ssize(batch.pair_scales) + batch.max_pairs,
              0);
  }
}

}  // namespace
}  // namespace heddle::model
