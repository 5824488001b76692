#include "heddle/ops/speculation.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, AStepOfSpeculation) {
  // One request with two drafts, of which the first is confirmed; five tokens in blocks 4 9 3 of
  // two.
  const DeviceBuffer<int32_t> input(std::vector<int32_t>{1, 7, 3}),
      output(std::vector<int32_t>{7, 5, 6}), ids(std::vector<int32_t>{4, 9, 3, -1}), slots(1);
  const DeviceBuffer<int64_t> offset(std::vector<int64_t>{0}), length(std::vector<int64_t>{5}),
      counts(std::vector<int64_t>{3}), last_id(std::vector<int64_t>{3}), sampled(1), released(2),
      num_released(1);
  const OnDevice c_input(input, {3}), c_output(output, {3}), c_ids(ids, {1, 4}),
      c_slots(slots, {1, 1}), c_offset(offset, {1}), c_length(length, {1}), c_counts(counts, {1}),
      c_last_id(last_id, {1}), c_sampled(sampled, {1}), c_released(released, {2}),
      c_num_released(num_released, {1});
  const heddle_kv_block_state state{c_offset.get(), c_length.get(), c_counts.get(), c_last_id.get(),
                                    c_ids.get()};
  heddle_speculative_step_outputs outputs;
  heddle_speculative_step_outputs_init(&outputs);
  outputs.sampled_tokens = c_sampled.get();
  outputs.released.released_ids = c_released.get();
  outputs.released.num_released = c_num_released.get();
  outputs.next_slots = c_slots.get();
  const heddle_count one{1, nullptr}, none{0, nullptr};
  const heddle_drafts drafts{2, nullptr, false};
  expect_ok(heddle_speculative_step(context_, &outputs, &state, c_input.get(), c_output.get(),
                                    nullptr, &one, &none, &drafts, 2, nullptr));
  EXPECT_EQ(sampled.download()[0], 5);
  EXPECT_EQ(num_released.download()[0], 1);
  EXPECT_EQ(released.download(0, 1)[0], 3);
  EXPECT_TRUE(released.untouched(1, 1));
  EXPECT_EQ(length.download()[0], 4);
  EXPECT_EQ(ids.download(), (std::vector<int32_t>{4, 9, -1, -1}));
  EXPECT_EQ(slots.download()[0], -1);  // in a third block
}

TEST_F(CApiCuda, NgramDrafts) {
  const DeviceBuffer<int32_t> tokens(std::vector<int32_t>{7, 8, 1, 7, 8, 2, 7, 8}), drafts(2);
  const DeviceBuffer<int64_t> lengths(std::vector<int64_t>{8}), count(1);
  const OnDevice c_tokens(tokens, {1, 8}), c_drafts(drafts, {1, 2}), c_lengths(lengths, {1}),
      c_count(count, {1});
  expect_ok(heddle_propose_ngram_drafts(context_, c_drafts.get(), c_count.get(), c_tokens.get(),
                                        c_lengths.get(), 2, nullptr, nullptr));
  EXPECT_EQ(drafts.download(), (std::vector<int32_t>{1, 7}));
  EXPECT_EQ(count.download()[0], 2);
}

}  // namespace
}  // namespace heddle::testing
