#pragma once

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// The bodies of the tests of verify_speculative_tokens, the same for every device.

namespace heddle::testing::verify_speculative_tokens_cases {

struct Outputs {
  IndexBuffer last_one_indices;
  MaskBuffer mask;
  Outputs(int64_t num_rows, int64_t num_tokens) : last_one_indices(num_rows), mask(num_tokens) {}
};

inline void expect_verified(const DraftedBatch& batch, const Drafts& drafts, Outputs& got) {
  const ref::Verified want = ref::verify_speculative_tokens(
      batch.input, batch.output, batch.drafts, batch.num_prefill, drafts.reject_placeholders);
  Ints last_ones = want.last_one_indices;
  last_ones.resize(size_t(got.last_one_indices.rows()), -1);
  EXPECT_EQ(got.last_one_indices.values(), last_ones);
  EXPECT_EQ(got.mask.values(), want.mask);
  EXPECT_TRUE(got.last_one_indices.gaps_intact());
  EXPECT_TRUE(got.mask.gaps_intact());
}

inline void equals_the_reference(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    const DraftedBatch batch = random_batch(random_int(0, 20), random_int(0, 5), random_int(0, 5),
                                            random_int(0, 1) == 1, random_int(0, 3));
    IndexBuffer indptr(batch.draft_indptr), input(batch.input), output(batch.output);
    Drafts drafts = batch.ragged ? Drafts::ragged(indptr.view(), batch.max_drafts)
                                 : Drafts::uniform(batch.max_drafts);
    if (random_int(0, 2) == 0) drafts.reject_placeholders = !drafts.reject_placeholders;
    Outputs got(batch.num_requests() + random_int(0, 2), batch.num_tokens());
    const bool rows = random_int(0, 1) == 1;
    verify_speculative_tokens(device, got.last_one_indices.view(),
                              rows ? got.mask.as_row() : got.mask.view(),
                              rows ? input.as_row() : input.view(),
                              random_int(0, 1) == 1 ? output.as_row() : output.view(),
                              batch.num_decode, batch.num_prefill, drafts);
    expect_verified(batch, drafts, got);
  }
}

inline void takes_any_number_of_requests(const SpeculationRun& device) {
  const DraftedBatch batch = random_batch(device.many(70000), device.many(3000), 3, false);
  IndexBuffer input(batch.input), output(batch.output);
  Outputs got(batch.num_requests(), batch.num_tokens());
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), batch.num_decode, batch.num_prefill, Drafts::uniform(3));
  expect_verified(batch, Drafts::uniform(3), got);
}

inline void accepts_up_to_the_first_difference(const SpeculationRun& device) {
  // Request 0: 7 8 are confirmed, 5 is not; 6 would be but comes after it. Request 1: nothing.
  // Prefill: its token.
  IndexBuffer input(Ints{1, 7, 8, 5, 6, /**/ 2, 3, 4, 4, 4, /**/ 9});
  IndexBuffer output(Ints{7, 8, 9, 6, 6, /**/ 4, 4, 4, 4, 4, /**/ 1});
  Outputs got(3, 11);
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), 2, 1, Drafts::uniform(4));
  EXPECT_EQ(got.last_one_indices.values(), (Ints{2, 5, 10}));
  EXPECT_EQ(got.mask.values(), (Ints{1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1}));
}

inline void placeholders_are_compared_or_rejected_as_asked(const SpeculationRun& device) {
  IndexBuffer input(Ints{1, -1, -1}), output(Ints{-1, -1, 5}), indptr(Ints{0, 2});
  const auto last_one = [&](const Drafts& drafts) {
    Outputs got(1, 3);
    verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                              output.view(), 1, 0, drafts);
    return got.last_one_indices.get(0);
  };
  EXPECT_EQ(last_one(Drafts::uniform(2)), 2);
  EXPECT_EQ(last_one({.num_speculative_tokens = 2, .reject_placeholders = true}), 0);
  EXPECT_EQ(last_one(Drafts::ragged(indptr.view(), 2)), 0);
}

inline void tail_of_the_tokens_is_false_and_of_the_rows_minus_one(const SpeculationRun& device) {
  IndexBuffer input(Ints{1, 2, 2, 2, 2}), output(Ints{2, 2, 2, 2, 2, 2});
  Outputs got(4, 5);
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), 1, 1, Drafts::uniform(1));
  EXPECT_EQ(got.mask.values(), (Ints{1, 1, 1, 0, 0}));
  EXPECT_EQ(got.last_one_indices.values(), (Ints{1, 2, -1, -1}));
}

inline void counts_on_the_device_give_the_same_and_are_clamped(const SpeculationRun& device) {
  const DraftedBatch batch = random_batch(5, 2, 3, false, 6);
  IndexBuffer input(batch.input), output(batch.output);
  std::vector<int32_t> counts{5, 2};
  const Count decode(host_view(counts.data(), {1})), prefill(host_view(counts.data() + 1, {}));
  Outputs got(9, batch.num_tokens());
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), decode, prefill, Drafts::uniform(3));
  expect_verified(batch, Drafts::uniform(3), got);

  counts = {1000, -3};  // more than there are rows: those that have tokens
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), decode, prefill, Drafts::uniform(3));
  EXPECT_EQ(got.last_one_indices.get(8), -1);  // would begin at token 32 of 28
  EXPECT_GE(got.last_one_indices.get(6), 24);
  EXPECT_TRUE(got.last_one_indices.gaps_intact());
  EXPECT_TRUE(got.mask.gaps_intact());
}

inline void wild_starts_stay_within_the_tokens(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(200); ++round) {
    const DraftedBatch batch = random_batch(6, 2, 3, true);
    IndexBuffer input(batch.input), output(batch.output), indptr(7);
    for (int64_t i = 0; i < 7; ++i) indptr.set(i, random_int(-40, 40));
    Outputs got(8, batch.num_tokens());
    verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                              output.view(), 6, 2, Drafts::ragged(indptr.view(), 3));
    for (const int64_t last : got.last_one_indices.values()) {
      EXPECT_GE(last, -1);
      EXPECT_LT(last, batch.num_tokens());
    }
    EXPECT_TRUE(got.mask.gaps_intact());
  }
  // Three drafts by the starts, all right, of which two count.
  IndexBuffer input(Ints{10, 11, 12, 13}), output(Ints{11, 12, 13, 14}), far(Ints{0, 3});
  Outputs got(1, 4);
  verify_speculative_tokens(device, got.last_one_indices.view(), got.mask.view(), input.view(),
                            output.view(), 1, 0, Drafts::ragged(far.view(), 2));
  EXPECT_EQ(got.last_one_indices.get(0), 2);
  EXPECT_EQ(got.mask.values(), (Ints{1, 1, 1, 0}));
}

inline void empty_batches(const SpeculationRun& device) {
  IndexBuffer none(0), tokens(Ints{1, 2});
  MaskBuffer no_mask(0), mask(2);
  verify_speculative_tokens(device, none.view(), no_mask.view(), none.view(), none.view(), 0, 0,
                            Drafts::uniform(3));
  verify_speculative_tokens(device, none.view(), mask.view(), tokens.view(), tokens.view(), 0, 0,
                            Drafts::uniform(3));
  EXPECT_EQ(mask.values(), (Ints{0, 0}));
}

inline void errors_name_tensor_axis_and_values(const SpeculationRun& device) {
  IndexBuffer last(3), input(8), output(8), short_output(7), indptr(Ints{0, 1});
  MaskBuffer mask(8), short_mask(7);
  std::vector<float> floats(8);
  const auto run = [&](TensorView mask_view, ConstTensorView in, ConstTensorView out,
                       const Count& decode, const Count& prefill, const Drafts& drafts) {
    verify_speculative_tokens(device, last.view(), mask_view, in, out, decode, prefill, drafts);
  };
  const Drafts three = Drafts::uniform(3);
  expect_invalid({"input_tokens has 8 tokens, the 2 decode and 1 prefill requests have 9"},
                 [&] { run(mask.view(), input.view(), output.view(), 2, 1, three); });
  expect_invalid({"output_tokens.size(0) is 7, expected at least num_tokens = 8"},
                 [&] { run(mask.view(), input.view(), short_output.view(), 2, 0, three); });
  expect_invalid({"accepted_tokens_mask.size(0) is 7, expected at least num_tokens = 8"},
                 [&] { run(short_mask.view(), input.view(), output.view(), 2, 0, three); });
  expect_invalid({"num_decode_requests is 4, expected 0 to 3"},
                 [&] { run(mask.view(), input.view(), output.view(), 4, 0, three); });
  expect_invalid({"num_prefill_requests is 2, expected 0 to 1"},
                 [&] { run(mask.view(), input.view(), output.view(), 2, 2, three); });
  expect_invalid({"num_decode_requests is not given"},
                 [&] { run(mask.view(), input.view(), output.view(), {}, 0, three); });
  expect_invalid({"num_prefill_requests is not given"}, [&] {
    run(mask.view(), input.view(), output.view(), 2, ConstTensorView(), three);
  });
  expect_invalid({"num_speculative_tokens is -1"},
                 [&] { run(mask.view(), input.view(), output.view(), 2, 0, Drafts::uniform(-1)); });
  expect_invalid({"draft_indptr.size(0) is 2, expected at least num_decode_requests + 1 = 3"}, [&] {
    run(mask.view(), input.view(), output.view(), 2, 0, Drafts::ragged(indptr.view(), 3));
  });
  expect_unsupported({"input_tokens is f32, supported: i32, i64"}, [&] {
    run(mask.view(), host_view(floats.data(), {8}), output.view(), 2, 0, three);
  });
  expect_unsupported({"accepted_tokens_mask is i", "supported: bool, u8"},
                     [&] { run(input.view(), input.view(), output.view(), 2, 0, three); });
  expect_invalid({"input_tokens has rank 2, expected [num_tokens] or [1, num_tokens]"},
                 [&] { run(mask.view(), IndexBuffer(2, 4).view(), output.view(), 2, 0, three); });
  expect_invalid({"num_decode_requests has rank 1 and 2 elements, expected one element"},
                 [&] { run(mask.view(), input.view(), output.view(), indptr.view(), 0, three); });
}

inline void validation_names_row_and_value(const SpeculationRun& device) {
  const ScopedValidation validation;
  IndexBuffer last(3), input(Ints{1, 1, 1, 1, 1, 1}), output(Ints{1, 1, 1, 1, 1, 1});
  MaskBuffer mask(6);
  const auto run = [&](Ints starts, const Count& decode, const Count& prefill) {
    IndexBuffer indptr(starts);
    verify_speculative_tokens(device, last.view(), mask.view(), input.view(), output.view(), decode,
                              prefill, Drafts::ragged(indptr.view(), 2));
  };
  run({0, 2, 3}, 2, 1);
  expect_invalid({"draft_indptr[2] is 1, expected at least draft_indptr[1] = 2"}, [&] {
    run({0, 2, 1}, 2, 1);
  });
  expect_invalid({"draft_indptr[1] is 3, expected at most draft_indptr[0] + num_speculative_"},
                 [&] {
                   run({0, 3, 3}, 2, 1);
                 });
  expect_invalid({"draft_indptr[0] is 1, expected 0"}, [&] { run({1, 2, 3}, 2, 0); });
  expect_invalid({"input_tokens has 6 tokens, the 2 decode and 1 prefill requests have 7"}, [&] {
    run({0, 2, 4}, 2, 1);
  });
  std::vector<int64_t> counts{4, 2};
  const Count four(host_view(counts.data(), {1})), two(host_view(counts.data() + 1, {1}));
  expect_invalid({"num_decode_requests is 4, expected 0 to the rows for requests = 3"}, [&] {
    run({0, 1, 1, 1, 1}, four, 0);
  });
  expect_invalid({"num_prefill_requests is 2, with 2 decode requests at most 1"}, [&] {
    run({0, 1, 1, 1, 1}, two, two);
  });
  expect_invalid({"num_decode_requests is 2, expected below draft_indptr.size(0) = 2"}, [&] {
    run({0, 1}, two, 0);
  });
}

}  // namespace heddle::testing::verify_speculative_tokens_cases
