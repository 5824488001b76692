// lora_apply with several pairs (adapter, scale) for one token, on the CPU.
#include "ops/lora/pairs/pairs.h"

#include <gtest/gtest.h>

#include "exec_context.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/lora/test/pairs_test_body.h"

namespace heddle {
namespace {

using testing::context_with;
using testing::LoraRun;
using testing::message_of;
using testing::pick;

static_assert(pair_window_rows(0) == 256 && pair_window_rows(28'672) == 256);
static_assert(pair_window_rows(57'344) == 146 && pair_window_rows(int64_t{1} << 40) == 1);

template <class W>
class LoraPairs : public ::testing::Test {
 protected:
  /// body(run) for every instruction set, one after the other with 1, 2 and 3 threads.
  template <class Body>
  void for_each_run(const Body& body) {
    int threads = 0;
    for (const int64_t target : testing::cpu_targets()) {
      SCOPED_TRACE(testing::cpu_target_name(target));
      const testing::ScopedCpuTarget scoped(target);
      ThreadPool pool(threads++ % 3 + 1);
      body(LoraRun{context_with(&pool), mirror_});
      if (HasFatalFailure()) return;
    }
  }
  testing::Mirror mirror_;
};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(LoraPairs, AllTypes);

TYPED_TEST(LoraPairs, AreTheSumsOfTheReference) {
  using W = TypeParam;
  this->for_each_run([](const LoraRun& run) {
    testing::expect_pairs_are_the_sums_of_the_reference<float, W, float, half>(run, 5);
    testing::expect_pairs_are_the_sums_of_the_reference<W, W, bfloat16, float>(run, 20);
    testing::expect_pairs_are_the_sums_of_the_reference<half, W, half, bfloat16>(run, 270);
  });
}

TYPED_TEST(LoraPairs, HaveTheBitsOfOneCallAfterAnother) {
  using W = TypeParam;
  this->for_each_run([](const LoraRun& run) {
    const auto tokens = pick<int64_t>({1, 2, 9, 20, 270});
    testing::expect_pairs_have_the_bits_of_one_call_after_another<W, W, float, bfloat16>(run,
                                                                                         tokens);
    testing::expect_pairs_have_the_bits_of_one_call_after_another<float, W, half, half>(run, 3);
  });
}

TYPED_TEST(LoraPairs, OnePairHasTheBitsOfAnId) {
  using W = TypeParam;
  this->for_each_run([](const LoraRun& run) {
    testing::expect_one_pair_has_the_bits_of_an_id<float, W, float>(run, pick<int64_t>({1, 40}));
    testing::expect_one_pair_has_the_bits_of_an_id<W, W, half>(run, pick<int64_t>({2, 270}));
    testing::expect_one_pair_has_the_bits_of_an_id<W, W, bfloat16>(run, 11);
  });
}

TYPED_TEST(LoraPairs, OfARowAloneHaveTheBitsOfABatch) {
  using W = TypeParam;
  this->for_each_run([](const LoraRun& run) {
    testing::expect_pairs_of_a_row_alone_have_the_bits_of_a_batch<float, W, float>(run, 17, 4);
    testing::expect_pairs_of_a_row_alone_have_the_bits_of_a_batch<W, W, bfloat16>(run, 260, 4);
  });
}

TYPED_TEST(LoraPairs, AddUpInTheListsOfTokens) {
  testing::expect_pairs_add_up_in_the_lists_of_tokens<TypeParam>({{}, this->mirror_});
}

TYPED_TEST(LoraPairs, RowsWithoutPairsAreNotTouched) {
  testing::expect_rows_without_pairs_are_not_touched<TypeParam>({{}, this->mirror_});
}

TEST(LoraPairWindows, TakeAnyNumberOfOutputs) {
  testing::Mirror mirror;
  testing::expect_pairs_take_any_number_of_outputs<bfloat16>({{}, mirror}, 90, 100'003);
}

TEST(LoraPairWindows, TakeAnyNumberOfSlices) {
  testing::Mirror mirror;
  testing::expect_pairs_take_any_number_of_slices<half>({{}, mirror});
}

TEST(LoraPairWindows, TheWorkspaceIsMonotonic) {
  const auto bytes = [](int64_t tokens, int64_t out) {
    return lora_pairs_workspace_bytes({}, tokens, 64, out, 3, 16);
  };
  EXPECT_GT(bytes(0, 0), 0u);
  size_t last = 0;
  for (const int64_t out : {0, 100, 32'000, 32'768, 32'769, 50'000, 1'000'000, 100'000'000}) {
    EXPECT_GE(bytes(256, out), last) << out;
    EXPECT_EQ(bytes(256, out), bytes(70'000, out));
    EXPECT_LE(bytes(1, out), bytes(256, out));
    last = bytes(256, out);
  }
  const auto with_out = bytes(4, 1000) - bytes(4, 0);
  EXPECT_EQ(with_out, size_t{4 * 1000 * sizeof(float)});
}

class LoraPairErrors : public ::testing::Test {
 protected:
  testing::Mirror mirror;
  testing::LoraCall<float> c{LoraRun{{}, mirror}};
  std::vector<int64_t> starts = std::vector<int64_t>(6);
  std::vector<int32_t> slots = std::vector<int32_t>(3);
  LoraBatch pairs =
      LoraBatch::from_pairs(host_view(starts.data(), {6}), host_view(slots.data(), {3}));
};

TEST_F(LoraPairErrors, NameTheOpThatTakesThem) {
  const char* want = "the batch has pairs, which lora_apply alone takes";
  EXPECT_EQ(message_of([&] { c.shrink(pairs); }), want);
  EXPECT_EQ(message_of([&] { c.expand(pairs); }), want);
  testing::PoisonedBuffer<uint8_t> plan(1 << 16);
  EXPECT_EQ(message_of([&] { lora_plan({}, plan.view({1 << 16}), pairs, 5, 2, 2); }), want);
  EXPECT_EQ(message_of([&] { c.apply({}); }),
            "the batch has neither slot_ids nor segments nor pairs");
}

TEST_F(LoraPairErrors, NameWhatIsWrongWithTheBatch) {
  const auto message = [&](const auto& change) {
    LoraBatch batch = pairs;
    change(batch);
    return message_of([&] { c.apply(batch); });
  };
  EXPECT_EQ(message([&](LoraBatch& b) { b.slot_ids = c.batch().slot_ids; }),
            "the batch has pairs and slot_ids or segments, expected one of them");
  EXPECT_EQ(message([&](LoraBatch& b) { b.seg_starts = b.seg_ends = c.batch().slot_ids; }),
            "the batch has pairs and slot_ids or segments, expected one of them");
  EXPECT_EQ(message([&](LoraBatch& b) { b.pair_slots = {}; }),
            "the batch has pair_starts, but no pair_slots");
  EXPECT_EQ(message([&](LoraBatch& b) { b.pair_starts = {}; }),
            "the batch has pairs, but no pair_starts");
  EXPECT_EQ(message([&](LoraBatch& b) { b.plan = b.pair_slots; }),
            "the batch has pairs and a plan, but calls with pairs make their own");
  EXPECT_EQ(message([&](LoraBatch& b) { b.pair_starts = b.pair_starts.narrow(0, 0, 5); }),
            "pair_starts.size(0) is 5, expected num_tokens + 1 = 6");
  EXPECT_EQ(message([&](LoraBatch& b) { b.pair_scales = host_view(c.x.data(), {2}); }),
            "pair_scales.size(0) is 2, expected num_pairs = 3");
  EXPECT_EQ(message([&](LoraBatch& b) { b.pair_scales = b.pair_slots; }),
            "pair_scales is i32, supported: f32");
  EXPECT_EQ(message([&](LoraBatch& b) { b.max_pairs = -1; }),
            "max_pairs is -1, expected at least 0");
  EXPECT_NO_THROW(c.apply(pairs));
}

}  // namespace
}  // namespace heddle
