#include <vector>

#include <gtest/gtest.h>

#include "capi/test/capi_test_body.h"

namespace heddle {
namespace {

using testing::Context;
using testing::CTensor;
using testing::expect_failure;

/// One request with two drafts, of which the first is confirmed; five tokens in blocks 4 9 3 of
/// two.
struct Example {
  std::vector<int32_t> input{1, 7, 3}, output{7, 5, 6}, required{10, 11, 12};
  std::vector<int64_t> offset{0}, length{5}, counts{3}, last_id{3}, ids{4, 9, 3, -1};
  CTensor input_tokens{input.data(), {3}}, output_tokens{output.data(), {1, 3}};
  CTensor required_logit_indices{required.data(), {3}};
  CTensor kv_offset{offset.data(), {1}}, kv_length{length.data(), {1}};
  CTensor kv_counts{counts.data(), {1}}, kv_last_id{last_id.data(), {1}};
  CTensor kv_ids{ids.data(), {1, 4}};
  heddle_kv_block_state state{kv_offset.get(), kv_length.get(), kv_counts.get(), kv_last_id.get(),
                              kv_ids.get()};

  std::vector<int64_t> last_one{0}, sampled{0}, last_seq{0}, accepted{0, 0}, accepted_count{0};
  std::vector<int32_t> released{0, 0}, num_released{0}, block{0};
  std::vector<uint8_t> mask{2, 2, 2}, remove{2};
  CTensor last_one_indices{last_one.data(), {1}}, accepted_tokens_mask{mask.data(), {3}};
  CTensor sampled_tokens{sampled.data(), {1}}, last_accepted_seq{last_seq.data(), {1}};
  CTensor accepted_tokens{accepted.data(), {1, 2}}, accepted_counts{accepted_count.data(), {1}};
  CTensor blocks_to_release{block.data(), {1}}, remove_mask{remove.data(), {1}};
  CTensor released_ids{released.data(), {2}}, num_released_ids{num_released.data(), {1}};
  heddle_released_blocks releases{blocks_to_release.get(), remove_mask.get(), released_ids.get(),
                                  num_released_ids.get()};

  heddle_count one{1, nullptr}, none{0, nullptr};
  heddle_drafts drafts{2, nullptr, false};

  void expect_results() const {
    EXPECT_EQ(last_one[0], 1);
    EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 0}));
    EXPECT_EQ(sampled[0], 5);
    EXPECT_EQ(last_seq[0], 11);
    EXPECT_EQ(accepted, (std::vector<int64_t>{7, -1}));
    EXPECT_EQ(accepted_count[0], 1);
    EXPECT_EQ(offset[0], 1);
    EXPECT_EQ(length[0], 4);
    EXPECT_EQ(counts[0], 2);
    EXPECT_EQ(last_id[0], 9);
    EXPECT_EQ(ids, (std::vector<int64_t>{4, 9, -1, -1}));
    EXPECT_EQ(block[0], 3);
    EXPECT_EQ(remove[0], 1);
    EXPECT_EQ(released[0], 3);
    EXPECT_EQ(num_released[0], 1);
  }
};

TEST(CApiSpeculation, VerifyPrepareAndRewind) {
  Example e;
  const Context context(1);
  ASSERT_EQ(heddle_verify_speculative_tokens(context, e.last_one_indices.get(),
                                             e.accepted_tokens_mask.get(), e.input_tokens.get(),
                                             e.output_tokens.get(), &e.one, &e.none, &e.drafts),
            HEDDLE_OK)
      << heddle_last_error();
  ASSERT_EQ(heddle_prepare_next_forward_pass(
                context, e.sampled_tokens.get(), e.last_accepted_seq.get(), e.accepted_tokens.get(),
                e.accepted_counts.get(), e.output_tokens.get(), e.required_logit_indices.get(),
                e.last_one_indices.get(), e.accepted_tokens_mask.get(), e.input_tokens.get(),
                &e.one, &e.drafts, false),
            HEDDLE_OK)
      << heddle_last_error();
  std::vector<int32_t> decode{0};
  const CTensor prefill_status(decode.data(), {1});
  ASSERT_EQ(heddle_rewind_kv_cache(context, &e.releases, &e.state, e.accepted_counts.get(),
                                   prefill_status.get(), &e.drafts, 2, nullptr),
            HEDDLE_OK)
      << heddle_last_error();
  e.expect_results();
}

TEST(CApiSpeculation, StepWithCountsOnTheDevice) {
  Example e;
  std::vector<int32_t> counts{1, 0};
  const CTensor decode(counts.data(), {1}), prefill(counts.data() + 1, {1});
  const heddle_count num_decode{77, decode.get()}, num_prefill{77, prefill.get()};
  std::vector<int64_t> slots{0, 0};
  const CTensor next_slots(slots.data(), {1, 2});
  heddle_speculative_step_outputs outputs;
  heddle_speculative_step_outputs_init(&outputs);
  outputs.last_one_indices = e.last_one_indices.get();
  outputs.accepted_tokens_mask = e.accepted_tokens_mask.get();
  outputs.sampled_tokens = e.sampled_tokens.get();
  outputs.last_accepted_seq = e.last_accepted_seq.get();
  outputs.accepted_tokens = e.accepted_tokens.get();
  outputs.accepted_counts = e.accepted_counts.get();
  outputs.released = e.releases;
  outputs.next_slots = next_slots.get();
  heddle_speculative_step_options options;
  heddle_speculative_step_options_init(&options);
  options.num_next_tokens = 2;
  const Context context(2);
  ASSERT_EQ(heddle_speculative_step(context, &outputs, &e.state, e.input_tokens.get(),
                                    e.output_tokens.get(), e.required_logit_indices.get(),
                                    &num_decode, &num_prefill, &e.drafts, 2, &options),
            HEDDLE_OK)
      << heddle_last_error();
  e.expect_results();
  EXPECT_EQ(slots, (std::vector<int64_t>{-1, -1}));  // both in a third block
}

TEST(CApiSpeculation, NgramDrafts) {
  std::vector<int32_t> tokens{7, 8, 1, 7, 8, 2, 7, 8}, lengths{8}, drafts{0, 0}, count{0};
  const CTensor from(tokens.data(), {1, 8}), length(lengths.data(), {1});
  const CTensor to(drafts.data(), {1, 2}), num_drafts(count.data(), {1});
  const Context context(1);
  const auto propose = [&](const heddle_ngram_options* options) {
    return heddle_propose_ngram_drafts(context, to.get(), num_drafts.get(), from.get(),
                                       length.get(), 2, nullptr, options);
  };
  ASSERT_EQ(propose(nullptr), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(drafts, (std::vector<int32_t>{1, 7}));
  EXPECT_EQ(count[0], 2);
  heddle_ngram_options options;
  heddle_ngram_options_init(&options);
  options.match = HEDDLE_NGRAM_LAST;
  options.max_length = 9;
  ASSERT_EQ(propose(&options), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(drafts, (std::vector<int32_t>{2, -1}));
  EXPECT_EQ(count[0], 1);
  options.match = 5;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "match is 5", propose(&options));
}

TEST(CApiSpeculation, FailuresNameTheArgument) {
  Example e;
  const Context context(1);
  const auto verify = [&](DLTensor* last_one, const heddle_count* decode,
                          const heddle_drafts* drafts) {
    return heddle_verify_speculative_tokens(context, last_one, e.accepted_tokens_mask.get(),
                                            e.input_tokens.get(), e.output_tokens.get(), decode,
                                            &e.none, drafts);
  };
  expect_failure(HEDDLE_INVALID_ARGUMENT, "last_one_indices is NULL",
                 verify(nullptr, &e.one, &e.drafts));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "num_decode_requests is NULL",
                 verify(e.last_one_indices.get(), nullptr, &e.drafts));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "drafts is NULL",
                 verify(e.last_one_indices.get(), &e.one, nullptr));
  e.one.value = 2;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "num_decode_requests is 2, expected 0 to 1",
                 verify(e.last_one_indices.get(), &e.one, &e.drafts));
  e.state.kv_block_ids = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "kv_block_ids is NULL",
                 heddle_rewind_kv_cache(context, nullptr, &e.state, e.accepted_counts.get(),
                                        e.accepted_counts.get(), &e.drafts, 2, nullptr));
}

TEST(CApiMamba, CopiesEveryState) {
  std::vector<float> current{1, 2}, intermediate{3, 4, 5, 6};  // [1, 1, 2], [1, 1, 2, 2]
  std::vector<uint8_t> conv{1}, conv_intermediate{7, 8};       // [1, 1, 1], [1, 1, 2, 1]
  const CTensor to(current.data(), {1, 1, 2}), from(intermediate.data(), {1, 1, 2, 2});
  const CTensor conv_to(conv.data(), {1, 1, 1}), conv_from(conv_intermediate.data(), {1, 1, 2, 1});
  DLTensor* const currents[] = {to.get(), conv_to.get()};
  const DLTensor* const intermediates[] = {from.get(), conv_from.get()};
  std::vector<int64_t> zero{0}, one{1};
  const CTensor zeros(zero.data(), {1}), ones(one.data(), {1});
  const Context context(1);
  const auto copy = [&](int32_t num_states, const heddle_count* num_active) {
    return heddle_mamba_state_selective_copy(context, currents, intermediates, num_states,
                                             zeros.get(), zeros.get(), ones.get(), 1, num_active);
  };
  const heddle_count nobody{0, nullptr};
  ASSERT_EQ(copy(2, &nobody), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(current, (std::vector<float>{1, 2}));
  ASSERT_EQ(copy(2, nullptr), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(current, (std::vector<float>{5, 6}));
  EXPECT_EQ(conv, std::vector<uint8_t>{8});
  expect_failure(HEDDLE_INVALID_ARGUMENT, "num_states is 9, expected 0 to 8", copy(9, nullptr));
}

}  // namespace
}  // namespace heddle
