#pragma once

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// The bodies of the tests of speculative_step, the same for every device.

namespace heddle::testing::speculative_step_cases {

constexpr int64_t kBefore = IndexBuffer::kBefore;

/// A batch of `rows` requests, the last of which are padding, and everything that a step reads or
/// writes. Copies are equal.
struct Step {
  DraftedBatch batch;
  int64_t rows, block_size, max_blocks, num_next_tokens;
  std::vector<ref::KvRequest> kv;
  IndexBuffer input, output, required, indptr;
  KvBuffers state;
  IndexBuffer last_ones, sampled, last_seq, tokens, counts, blocks, ids, num;
  MaskBuffer mask, remove;
  IndexBuffer positions, slots, kv_lens, last_page_len;

  explicit Step(const DraftedBatch& b, int64_t padding_rows = random_int(0, 3))
      : batch(b),
        rows(b.num_requests() + padding_rows),
        block_size(random_int(1, 5)),
        max_blocks((b.max_drafts + block_size) / block_size + random_int(1, 2)),
        num_next_tokens(random_int(1, 4)),
        kv(random_kv(rows, max_blocks, block_size, b.max_drafts)),
        input(b.input),
        output(b.output),
        required(b.num_tokens()),
        indptr(b.draft_indptr),
        state(kv, max_blocks),
        last_ones(rows + 1),
        sampled(rows + 1),
        last_seq(rows + 1),
        tokens(rows + 1, b.max_drafts + 1),
        counts(rows + 1),
        blocks(rows + 1),
        ids(rows * max_blocks),
        num(1),
        mask(b.num_tokens()),
        remove(rows + 1),
        positions(rows + 1, num_next_tokens),
        slots(rows + 1, num_next_tokens + 1),
        kv_lens(rows + 1),
        last_page_len(rows + 1) {
    for (int64_t t = 0; t < b.num_tokens(); ++t) required.set(t, random_int(0, 99999));
  }

  Drafts drafts() {
    return batch.ragged ? Drafts::ragged(indptr.view(), batch.max_drafts)
                        : Drafts::uniform(batch.max_drafts);
  }
  ReleasedBlocks released() { return {blocks.view(), remove.view(), ids.view(), num.view()}; }
  SpeculativeStepOutputs outputs() {
    return {.last_one_indices = last_ones.view(),
            .accepted_tokens_mask = mask.view(),
            .sampled_tokens = sampled.view(),
            .last_accepted_seq = last_seq.view(),
            .accepted_tokens = tokens.view(),
            .accepted_counts = counts.view(),
            .released = released(),
            .next_positions = positions.view(),
            .next_slots = slots.view(),
            .next_kv_lens = kv_lens.view(),
            .next_last_page_len = last_page_len.view()};
  }
  void fused(const SpeculationRun& device, const SpeculativeStepOutputs& to,
             const Count& num_decode, const Count& num_prefill, bool write_prefill_rows) {
    speculative_step(
        device, to, state.state(), input.view(), output.view(), required.view(), num_decode,
        num_prefill, drafts(), block_size,
        {.write_prefill_rows = write_prefill_rows, .num_next_tokens = num_next_tokens});
  }
  void one_by_one(const SpeculationRun& device, bool write_prefill_rows) {
    verify_speculative_tokens(device, last_ones.view(), mask.view(), input.view(), output.view(),
                              batch.num_decode, batch.num_prefill, drafts());
    prepare_next_forward_pass(device, sampled.view(), last_seq.view(), tokens.view(), counts.view(),
                              output.view(), required.view(), last_ones.view().narrow(0, 0, rows),
                              mask.view(), input.view(), batch.num_decode, drafts(),
                              {.write_prefill_rows = write_prefill_rows});
    Ints prefill;
    for (int64_t i = 0; i < rows; ++i) prefill.push_back(i >= batch.num_decode);
    IndexBuffer prefill_status(prefill);
    rewind_kv_cache(device, released(), state.state(), counts.view().narrow(0, 0, rows),
                    prefill_status.view(), drafts(), block_size, batch.num_requests());
  }
  /// All but the next step.
  void expect_same(const Step& want) const {
    EXPECT_EQ(last_ones.values(), want.last_ones.values());
    EXPECT_EQ(mask.values(), want.mask.values());
    EXPECT_EQ(sampled.values(), want.sampled.values());
    EXPECT_EQ(last_seq.values(), want.last_seq.values());
    EXPECT_EQ(counts.values(), want.counts.values());
    EXPECT_EQ(blocks.values(), want.blocks.values());
    EXPECT_EQ(remove.values(), want.remove.values());
    EXPECT_EQ(ids.values(), want.ids.values());
    EXPECT_EQ(num.get(0), want.num.get(0));
    for (int64_t i = 0; i <= rows; ++i) EXPECT_EQ(tokens.row(i), want.tokens.row(i));
    expect_same_state(want);
  }
  void expect_same_state(const Step& want) const {
    EXPECT_EQ(state.offset.values(), want.state.offset.values());
    EXPECT_EQ(state.length.values(), want.state.length.values());
    EXPECT_EQ(state.count.values(), want.state.count.values());
    EXPECT_EQ(state.last_id.values(), want.state.last_id.values());
    for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(state.ids.row(i), want.state.ids.row(i));
  }
  /// From the state after the rewind: the cache of a request holds as many tokens as
  /// kv_length_offsets says.
  void expect_next_step() const {
    for (int64_t i = 0; i <= rows; ++i) {
      const bool active = i < batch.num_requests(), padding = !active && i < rows;
      const int64_t cached = i < rows ? state.length.get(i) : 0;
      const int64_t kv_len = cached + num_next_tokens;
      EXPECT_EQ(kv_lens.get(i), active ? kv_len : padding ? 0 : kBefore);
      EXPECT_EQ(last_page_len.get(i), active    ? (kv_len - 1) % block_size + 1
                                      : padding ? 0
                                                : kBefore);
      for (int64_t j = 0; j < num_next_tokens; ++j) {
        const int64_t position = cached + j, block = position / block_size;
        const bool there = active && block < state.count.get(i);
        const int64_t slot =
            there ? state.ids.get(i, block) * block_size + position % block_size : -1;
        EXPECT_EQ(positions.get(i, j), active ? position : padding ? -1 : kBefore);
        EXPECT_EQ(slots.get(i, j), active || padding ? slot : kBefore);
      }
      EXPECT_EQ(slots.get(i, num_next_tokens), kBefore);  // columns past Q stay as they are
    }
  }
  [[nodiscard]] bool gaps_intact() const {
    for (const IndexBuffer* b : {&last_ones, &sampled, &last_seq, &tokens, &counts, &blocks, &ids,
                                 &num, &positions, &slots, &kv_lens, &last_page_len}) {
      if (!b->gaps_intact()) return false;
    }
    return state.gaps_intact() && mask.gaps_intact() && remove.gaps_intact();
  }
};

inline void equals_the_three_calls_one_after_another(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    Step fused(random_batch(random_int(0, 12), random_int(0, 4), random_int(0, 7),
                            random_int(0, 1) == 1, random_int(0, 3)));
    Step separate = fused;
    const bool write_prefill_rows = random_int(0, 1) == 1;
    fused.fused(device, fused.outputs(), fused.batch.num_decode, fused.batch.num_prefill,
                write_prefill_rows);
    separate.one_by_one(device, write_prefill_rows);
    fused.expect_same(separate);
    fused.expect_next_step();
    EXPECT_TRUE(fused.gaps_intact());
    if (::testing::Test::HasFailure()) break;
  }
}

inline void takes_any_number_of_requests(const SpeculationRun& device) {
  Step fused(random_batch(device.many(66000), 1000, 3, false));
  Step separate = fused;
  fused.fused(device, fused.outputs(), fused.batch.num_decode, 1000, false);
  separate.one_by_one(device, false);
  fused.expect_same(separate);
  fused.expect_next_step();

  Step again = separate;  // without the list, in parallel: what its rewind of nothing more gives
  SpeculativeStepOutputs outputs = again.outputs();
  outputs.released = {.blocks_to_release = again.blocks.view(), .remove_mask = again.remove.view()};
  Step listed = again;
  again.fused(device, outputs, fused.batch.num_decode, 1000, false);
  listed.fused(device, listed.outputs(), fused.batch.num_decode, 1000, false);
  again.expect_same_state(listed);
  EXPECT_EQ(again.blocks.values(), listed.blocks.values());
  EXPECT_EQ(again.remove.values(), listed.remove.values());
}

inline void counts_on_the_device_give_the_same(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(50); ++round) {
    Step on_device(random_batch(random_int(0, 9), random_int(0, 4), 3, random_int(0, 1) == 1,
                                random_int(0, 3)));
    Step on_host = on_device;
    IndexBuffer counts(Ints{on_device.batch.num_decode, on_device.batch.num_prefill});
    on_device.fused(device, on_device.outputs(), counts.view().narrow(0, 0, 1),
                    counts.view().narrow(0, 1, 1), false);
    on_host.fused(device, on_host.outputs(), on_host.batch.num_decode, on_host.batch.num_prefill,
                  false);
    on_device.expect_same(on_host);
    on_device.expect_next_step();
  }
  // More prefill requests than there are rows for: those that have one.
  Step too_many(random_batch(3, 2, 3, false), 0);
  Step on_host = too_many;
  IndexBuffer counts(Ints{3, 1000});
  too_many.fused(device, too_many.outputs(), counts.view().narrow(0, 0, 1),
                 counts.view().narrow(0, 1, 1), false);
  on_host.fused(device, on_host.outputs(), 3, 2, false);
  too_many.expect_same(on_host);
}

inline void every_output_may_be_absent(const SpeculationRun& device) {
  const Step before(random_batch(7, 3, 4, false));
  Step all = before, state_only = before;
  all.fused(device, all.outputs(), 7, 3, false);
  speculative_step(device, {}, state_only.state.state(), state_only.input.view(),
                   state_only.output.view(), {}, 7, 3, state_only.drafts(), state_only.block_size);
  state_only.expect_same_state(all);

  Step one = before;
  one.fused(device, {.accepted_counts = one.counts.view()}, 7, 3, false);
  EXPECT_EQ(one.counts.values(), all.counts.values());
  one.expect_same_state(all);
  Step list = before;
  ReleasedBlocks released;
  released.num_released = list.num.view();
  list.fused(device, {.released = released}, 7, 3, false);
  EXPECT_EQ(list.num.get(0), all.num.get(0));
  Step next = before;
  next.fused(device, {.next_slots = next.slots.view()}, 7, 3, false);
  for (int64_t i = 0; i < next.rows; ++i) EXPECT_EQ(next.slots.row(i), all.slots.row(i));
}

inline void a_slot_in_a_block_that_is_yet_to_be_had_is_minus_one(const SpeculationRun& device) {
  // Blocks of 2: five tokens in blocks 4 9 3, the two drafts of which are wrong.
  KvBuffers state({{0, 5, 3, 3, {4, 9, 3, -1}}}, 4);
  IndexBuffer input(Ints{1, 2, 3}), output(Ints{7, 7, 7});
  IndexBuffer positions(1, 3), slots(1, 3), kv_lens(1), last_page_len(1), ids(1), num(1);
  speculative_step(device,
                   {.released = {.released_ids = ids.view(), .num_released = num.view()},
                    .next_positions = positions.view(),
                    .next_slots = slots.view(),
                    .next_kv_lens = kv_lens.view(),
                    .next_last_page_len = last_page_len.view()},
                   state.state(), input.view(), output.view(), {}, 1, 0, Drafts::uniform(2), 2,
                   {.num_next_tokens = 3});
  EXPECT_TRUE(state.holds(0, {0, 3, 2, 9, {4, 9, -1, -1}}));
  EXPECT_EQ(ids.get(0), 3);
  EXPECT_EQ(num.get(0), 1);
  EXPECT_EQ(positions.row(0), (Ints{3, 4, 5}));
  EXPECT_EQ(slots.row(0), (Ints{19, -1, -1}));
  EXPECT_EQ(kv_lens.get(0), 6);
  EXPECT_EQ(last_page_len.get(0), 2);
}

inline void states_that_make_no_sense_give_what_the_formulas_say(const SpeculationRun& device) {
  // Blocks of 2, one draft each, which is wrong. More blocks than the table has: the rewind clears
  // its last entry, which the next step then finds without an id. Numbers that kernels do not
  // compute with in 32 bits.
  constexpr int64_t kLarge = int64_t{1} << 30;
  KvBuffers state({{0, 9, 3, 5, {4, 6}}, {0, 9, kLarge, 5, {4, 6}}, {kLarge, 9, -7, 5, {4, 6}}}, 2);
  IndexBuffer input(Ints{1, 2, 1, 2, 1, 2}), output(Ints{7, 7, 7, 7, 7, 7}), slots(3, 1), num(1);
  speculative_step(device, {.released = {.num_released = num.view()}, .next_slots = slots.view()},
                   state.state(), input.view(), output.view(), {}, 3, 0, Drafts::uniform(1), 2);
  EXPECT_TRUE(state.holds(0, {1, 8, 2, 6, {4, -1}}));
  EXPECT_TRUE(state.holds(1, {1, 8, kLarge - 1, 6, {4, -1}}));
  EXPECT_TRUE(state.holds(2, {1, 8, -7, 5, {4, 6}}));
  EXPECT_EQ(num.get(0), 2);
  EXPECT_EQ(slots.values(), (Ints{-1, -1, -1}));
}

inline void empty_batch(const SpeculationRun& device) {
  Step step(random_batch(0, 0, 3, false), 0);
  step.fused(device, step.outputs(), 0, 0, false);
  EXPECT_EQ(step.num.get(0), 0);
  EXPECT_EQ(step.last_ones.values(), Ints{-1});
  EXPECT_EQ(step.sampled.values(), Ints{kBefore});
  EXPECT_TRUE(step.gaps_intact());
}

inline void errors_name_tensor_axis_and_values(const SpeculationRun& device) {
  Step step(random_batch(3, 1, 2, false), 0);
  const auto run = [&](const SpeculativeStepOutputs& outputs, const Count& num_decode,
                       const SpeculativeStepOptions& options, ConstTensorView required) {
    speculative_step(device, outputs, step.state.state(), step.input.view(), step.output.view(),
                     required, num_decode, 1, step.drafts(), step.block_size, options);
  };
  expect_invalid({"num_prefill_requests is 1, expected 0 to 0"}, [&] { run({}, 4, {}, {}); });
  expect_invalid({"num_next_tokens is 0, expected at least 1"},
                 [&] { run({}, 3, {.num_next_tokens = 0}, {}); });
  IndexBuffer narrow(4, 1), few(3);
  expect_invalid({"next_slots.size(1) is 1, expected at least num_next_tokens = 2"},
                 [&] { run({.next_slots = narrow.view()}, 3, {.num_next_tokens = 2}, {}); });
  expect_invalid({"accepted_tokens.size(1) is 1, expected at least num_speculative_tokens = 2"},
                 [&] { run({.accepted_tokens = narrow.view()}, 3, {}, {}); });
  expect_invalid({"sampled_tokens.size(0) is 3, expected at least num_requests = 4"},
                 [&] { run({.sampled_tokens = few.view()}, 3, {}, {}); });
  expect_invalid({"required_logit_indices has rank 0, expected 1"},
                 [&] { run({.last_accepted_seq = step.last_seq.view()}, 3, {}, {}); });
  expect_invalid({"required_logit_indices.size(0) is 3, expected at least num_tokens = 10"},
                 [&] { run({}, 3, {}, few.view()); });
}

inline void validation_names_row_and_value_and_changes_nothing(const SpeculationRun& device) {
  const ScopedValidation validation;
  Step step(random_batch(3, 1, 2, false));
  const Step before = step;
  step.state.count.set(2, step.max_blocks + 1);
  const std::string message = "kv_block_counts[2] is " + std::to_string(step.max_blocks + 1) +
                              ", expected 0 to max_blocks = " + std::to_string(step.max_blocks);
  expect_invalid({message.c_str()}, [&] { step.fused(device, step.outputs(), 3, 1, false); });
  step.state.count.set(2, before.state.count.get(2));
  step.expect_same(before);
  step.fused(device, step.outputs(), 3, 1, false);
  step.expect_next_step();
}

inline void validation_covers_counts_starts_and_the_cache(const SpeculationRun& device) {
  const ScopedValidation validation;
  const auto run = [&](const ref::KvRequest& kv, const Ints& starts, const Count& num_decode) {
    KvBuffers state({kv}, 4);
    IndexBuffer input(Ints{1, 2, 3}), output(Ints{7, 7, 7}), indptr(starts);
    speculative_step(device, {}, state.state(), input.view(), output.view(), {}, num_decode, 0,
                     Drafts::ragged(indptr.view(), 2), 2);
  };
  const ref::KvRequest good{0, 5, 3, 3, {4, 9, 3, -1}};
  IndexBuffer two(Ints{2});
  run(good, {0, 2}, 1);
  expect_invalid({"num_decode_requests is 2, expected 0 to the rows for requests = 1"}, [&] {
    run(good, {0, 1, 2}, two.view());
  });
  expect_invalid({"draft_indptr[1] is -1, expected at least draft_indptr[0] = 0"}, [&] {
    run(good, {0, -1}, 1);
  });
  expect_invalid({"draft_indptr[1] is 3, expected at most draft_indptr[0] + num_speculative_"},
                 [&] {
                   run(good, {0, 3}, 1);
                 });
  expect_invalid({"last_kv_block_offset[0] is -1, expected 0 to below block_size_tokens = 2"}, [&] {
    run({-1, 5, 3, 3, {4, 9, 3, -1}}, {0, 2}, 1);
  });
  expect_invalid({"kv_block_counts[0] is 0, a rewind of 2 tokens releases 1"}, [&] {
    run({0, 0, 0, -1, {-1, -1, -1, -1}}, {0, 2}, 1);
  });
}

}  // namespace heddle::testing::speculative_step_cases
