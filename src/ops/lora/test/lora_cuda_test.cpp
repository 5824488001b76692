// LoRA on a GPU: the bodies of the CPU's tests, and that every form of a call has the same bits.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"

#include "expect_error.h"
#include "ops/lora/test/contract_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "ops/lora/test/sum_test_body.h"
#include "ops/lora/test/table_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

TYPED_TEST_SUITE(LoraCuda, HalfTypes);

/// Calls of a size that the reference can check: long ones have few features.
template <class U, class W, class Y>
RandomCall<U, W, Y> random_call(bool is_shrink) {
  RandomCall<U, W, Y> call;
  call.is_shrink = is_shrink;
  call.is_regular = random_int(0, 1) == 0;
  call.largest_rank = kMaxLoraRank;
  call.num_tokens =
      small_sizes()
          ? pick<int64_t>({0, 1, 2, 9, 17, 40})
          : pick<int64_t>({0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 33, 64, 255, 256, 257, 300, 600});
  const int64_t most = small_or<int64_t>(20'000, 200'000);
  do {
    call.features = call.is_regular
                        ? pick<int64_t>({8, 16, 64, 256, 512, 520, 1024, 1104, 2104, 4608})
                        : pick<int64_t>({1, 2, 5, 8, 16, 31, 63, 64, 65, 100, 191, 255, 257, 513,
                                         577, 1100, 2100, 4609});
  } while (call.num_tokens * call.features > most);
  if (call.features > 600) call.num_slots = std::min(call.num_slots, 3);
  return call;
}

TYPED_TEST(LoraCuda, ShrinkAndExpandAreTheSumsOfTheReference) {
  using W = TypeParam;
  for (int round = 0; round < small_or(12, 30); ++round) {
    const bool is_shrink = round % 2 == 0;
    const DType u =
        is_shrink ? kDType<W> : pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
    const DType y = pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
    const LoraRun run = this->runs().any();
    dispatch_dtype<float, half, bfloat16>(y, "y", [&]<class Y>() {
      if (is_shrink) return random_call<W, W, Y>(true).run(run);
      dispatch_dtype<float, half, bfloat16>(
          u, "h", [&]<class U>() { random_call<U, W, Y>(false).run(run); });
    });
    ASSERT_FALSE(this->HasFatalFailure()) << "round " << round;
  }
}

/// The call in every form, and twice in the same, gives the same bits.
template <class U, class W, class Y, class ForEachForm>
void expect_same_bits(RandomCall<U, W, Y> call, const ForEachForm& for_each_form) {
  const auto ranks = call.draw_ranks(call.num_slots, true, call.largest_rank, call.is_regular);
  const LoraHalf<W> half(call.layout, call.features, ranks, call.is_regular);
  const LoraTableOf<W> table({&half});
  call.is_table = true;
  RandomLoraBatch rows(call.num_tokens, call.num_slots, random_int(0, 1) == 0);
  const int64_t rank = table.table.max_rank;
  Rows<U> u(call.num_tokens, call.is_shrink ? call.features : rank, call.is_regular);
  Rows<Y> y(call.num_tokens, call.is_shrink ? rank : call.features, call.is_regular);
  u.fill_random();
  y.fill_random();
  std::optional<Rows<Y>> want;
  for_each_form([&](const LoraRun& run) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      Rows<Y> got = y;
      call.call(run, half, table.table, rows, got.view(), u.view(), 0);
      if (!want) want = got;
      EXPECT_TRUE(got.same(*want)) << "repeat " << repeat;
    }
  });
}

TYPED_TEST(LoraCuda, EveryFormOfShrinkAndExpandHasTheSameBits) {
  using W = TypeParam;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const auto forms = [&](const auto& body) { this->for_each_form(body); };
    expect_same_bits(random_call<W, W, float>(true), forms);
    expect_same_bits(random_call<float, W, W>(false), forms);
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(LoraCuda, EveryFormOfApplyHasTheSameBits) {
  const Device device = this->cuda_context().device;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const bool is_regular = round % 2 == 0;
    const int64_t in = small_or<int64_t>(520, pick<int64_t>({64, 520, 1104, 4608}));
    const std::vector<int64_t> outs{192, is_regular ? 64 : 65, 8, 256, 72};
    DeviceSite<TypeParam> site(random_int(1, small_or(20, 300)), in, outs,
                               is_regular ? pick({16, 64, 512}) : pick({16, 65, 130}), is_regular);
    const auto want = site.expected_bits(device);
    ASSERT_NE(want, site.start_bits());
    const LoraStream one(device, site.workspace_bytes(), true);
    const LoraStream two(device, site.workspace_bytes(), false);
    for (const ExecContext& ctx :
         {two.ctx(), one.ctx(), one.ctx_of_chip(1), one.ctx_of_chip(7), one.ctx_of_chip(40)}) {
      for (const bool plan : {false, true}) {
        for (int repeat = 0; repeat < 2; ++repeat) {
          site.restart();
          site.apply(ctx, plan);
          ASSERT_EQ(site.bits(), want)
              << "round " << round << ", exchange " << !ctx.exchange.empty() << ", SMs "
              << ctx.info.num_sms << ", plan " << plan << ", repeat " << repeat;
        }
      }
    }
    ASSERT_TRUE(site.guards_intact());
  }
}

TYPED_TEST(LoraCuda, ApplyHasTheBitsOfShrinkAndExpand) {
  for (int round = 0; round < small_or(3, 8); ++round) {
    const int64_t num_tokens =
        small_sizes() ? pick<int64_t>({1, 8, 20}) : pick<int64_t>({1, 8, 17, 100, 270});
    const LoraRun run = this->runs().any();
    dispatch_dtype<float, half, bfloat16>(
        pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), "y", [&]<class Y>() {
          expect_apply_has_the_bits_of_shrink_and_expand<TypeParam, TypeParam, Y, Y>(
              run, num_tokens, random_int(0, 1) == 0);
        });
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(LoraCuda, ARowAloneHasTheBitsItHasInABatch) {
  for (const int64_t num_tokens : {21, small_or(30, 256), small_or(33, 600)}) {
    expect_a_row_alone_has_the_bits_it_has_in_a_batch<TypeParam, TypeParam, float>(
        this->runs().any(), num_tokens, small_or(3, 12));
    expect_a_row_alone_has_the_bits_it_has_in_a_batch<TypeParam, TypeParam, TypeParam>(
        this->runs().any(), num_tokens, small_or(3, 12));
  }
}

TYPED_TEST(LoraCuda, TakesTheLargestRank) {
  this->for_each_form([](const LoraRun& run) { expect_takes_the_largest_rank<TypeParam>(run); });
}

TYPED_TEST(LoraCuda, RowsWithoutAnAdapterAreNotTouched) {
  this->for_each_form(expect_rows_without_an_adapter_are_not_touched<TypeParam>);
}

TYPED_TEST(LoraCuda, NullWeightsAndNoSlotsTouchNothing) {
  this->for_each_form(expect_null_weights_and_no_slots_touch_nothing<TypeParam>);
}

TYPED_TEST(LoraCuda, SegmentsWithoutSlotsUseTheirOwnNumber) {
  this->for_each_form(expect_segments_without_slots_use_their_own_number<TypeParam>);
}

TYPED_TEST(LoraCuda, EmptyBatchesAreLegal) {
  this->for_each_form(expect_empty_batches_are_legal<TypeParam>);
}

TYPED_TEST(LoraCuda, TakesAnyNumberOfRows) {
  this->for_each_form([](const LoraRun& run) {
    expect_takes_any_number_of_rows<TypeParam>(run, small_or(600, 70'000));
  });
}

TYPED_TEST(LoraCuda, AddressesGiveTheBitsOfStackedWeights) {
  this->for_each_form([](const LoraRun& run) {
    expect_addresses_give_the_bits_of_stacked_weights<TypeParam, TypeParam>(run);
  });
}

TYPED_TEST(LoraCuda, AnAdapterTableGivesTheBitsOfStackedWeights) {
  this->for_each_form([](const LoraRun& run) {
    expect_an_adapter_table_gives_the_bits_of_stacked_weights<float, TypeParam>(run);
  });
}

TYPED_TEST(LoraCuda, ApplyMixesAddressesAndEntries) {
  this->for_each_form(expect_apply_mixes_addresses_and_entries<TypeParam, TypeParam>);
}

TYPED_TEST(LoraCuda, ANullAddressTouchesNothingAndEmptyTablesAreLegal) {
  this->for_each_form(expect_a_null_address_touches_nothing_and_empty_tables_are_legal<TypeParam>);
}

TYPED_TEST(LoraCuda, ARankAboveTheLimitGoesInParts) {
  this->for_each_form(expect_a_rank_above_the_limit_goes_in_parts<TypeParam>);
}

TYPED_TEST(LoraCuda, AClearedSlotTouchesNothing) {
  this->for_each_form(expect_a_cleared_slot_touches_nothing<TypeParam>);
}

TYPED_TEST(LoraCuda, ABatchWithoutAdaptersLeavesEveryBit) {
  DeviceSite<TypeParam> site(37, 520, {64, 65, 256}, 24, false);
  site.remove_all();
  const LoraStream one(this->cuda_context().device, site.workspace_bytes(), true);
  const LoraStream two(this->cuda_context().device, site.workspace_bytes(), false);
  for (const ExecContext& ctx : {two.ctx(), one.ctx(), one.ctx_of_chip(1)}) {
    for (const bool plan : {false, true}) {
      site.restart();
      site.apply(ctx, plan);
      EXPECT_EQ(site.bits(), site.start_bits());
    }
  }
  EXPECT_TRUE(site.guards_intact());
}

TYPED_TEST(LoraCuda, SlicesWithoutColumnsAreLegal) {
  for (const bool is_regular : {false, true}) {
    DeviceSite<TypeParam> site(20, 520, {0, 0, 64}, 24, is_regular), empty(3, 64, {0, 0}, 8, false);
    const auto want = site.expected_bits(this->cuda_context().device);
    EXPECT_NE(want, site.start_bits());
    const LoraStream stream(this->cuda_context().device, site.workspace_bytes(), true);
    site.restart();
    site.apply(stream.ctx_of_chip(1));
    EXPECT_EQ(site.bits(), want);
    EXPECT_NO_THROW(empty.apply(stream.ctx()));
  }
}

TYPED_TEST(LoraCuda, BlocksThatCannotWaitMakeTheSameBits) {
  const Device device = this->cuda_context().device;
  for (int round = 0; round < small_or(2, 4); ++round) {
    DeviceSite<TypeParam> site(random_int(1, small_or(20, 300)),
                               pick<int64_t>({520, 1104, small_or(1104, 4608)}), {64, 192, 256},
                               pick({16, 64, 136}), random_int(0, 1) == 0);
    const auto want = site.expected_bits(device);
    const LoraStream stream(device, site.workspace_bytes(), true);
    const std::vector<LoraSlice> slices = site.slices();
    const LoraTable a = site.a(), b = site.b();
    const LoraBatch batch = site.batch();
    const LoraSite call{.slices = slices, .input = site.x(), .a = &a, .b = &b};
    const ExecContext ctx = stream.ctx_of_chip(pick({1, 8, 40}));
    site.restart();
    run_on_gpu(ctx, "lora_apply", call, batch, {.spin_limit = 0});
    ASSERT_EQ(site.bits(), want) << "round " << round;
    // The words that blocks made for themselves must not pass for those of a later call.
    site.restart();
    site.apply(ctx);
    ASSERT_EQ(site.bits(), want) << "round " << round;
  }
}

TYPED_TEST(LoraCuda, ManyUnitsOfRanksThatDifferAreSharedOut) {
  const Device device = this->cuda_context().device;
  for (int round = 0; round < small_or(2, 6); ++round) {
    DeviceSite<TypeParam> site(random_int(2, small_or(20, 200)), pick<int64_t>({72, 520}),
                               {pick<int64_t>({8, 1032}), 256}, pick({24, 136}), true);
    const auto want = site.expected_bits(device);
    const LoraStream stream(device, site.workspace_bytes(), true);
    const LoraBatch planned = site.planned(stream.ctx());
    for (const int num_sms : {1, 3, 40}) {
      site.restart();
      site.apply(stream.ctx_of_chip(num_sms), planned);
      ASSERT_EQ(site.bits(), want) << "round " << round << ", " << num_sms << " SMs";
    }
  }
}

/// One row, one adapter of rank 8, on the device.
struct SmallCall {
  DeviceBuffer<half> x{std::vector<half>(64)}, w{std::vector<half>(8 * 64)};
  DeviceBuffer<float> wide_x{std::vector<float>(64)}, wide_w{std::vector<float>(8 * 64)}, h{8};
  DeviceBuffer<int32_t> ids{std::vector<int32_t>{0}};
  LoraBatch batch = LoraBatch::from_ids(ids.view({1}));
};

class LoraCudaErrors : public CudaTest {};

TEST_F(LoraCudaErrors, NameTheDtypesThatKernelsDoNotHave) {
  const LoraStream stream(cuda_context().device, 1 << 20, false);
  const ExecContext& ctx = stream.ctx();
  const SmallCall c;
  const TensorView h = c.h.view({1, 8});
  const DeviceBuffer<bfloat16> other(std::vector<bfloat16>(8 * 64));
  const ConstTensorView w = c.w.view({1, 8, 64}), wide_w = c.wide_w.view({1, 8, 64});
  expect_unsupported({"f32"}, [&] {
    lora_shrink(ctx, h, c.wide_x.view({1, 64}), wide_w, c.batch);
  });
  expect_unsupported({"x is f32", "f16"}, [&] {
    lora_shrink(ctx, h, c.wide_x.view({1, 64}), w, c.batch);
  });
  expect_unsupported({"x is f16", "bf16"}, [&] {
    lora_shrink(ctx, h, c.x.view({1, 64}), other.view({1, 8, 64}), c.batch);
  });
  expect_unsupported({"f32"}, [&] {
    lora_expand(ctx, c.wide_x.view({1, 64}), h, c.wide_w.view({1, 64, 8}), c.batch);
  });
  const LoraTable a = LoraTable::from_stack(w, LoraLayout::kRankMajor);
  LoraTable two = a;  // entries of two slices; the call ends before anything reads them
  const DeviceBuffer<LoraWeight> entries(2);
  two.stack = nullptr;
  two.entries = entries.data();
  two.num_slices = 2;
  const DeviceBuffer<half> y(64);
  const LoraSlice slices[] = {{c.wide_x.view({1, 64})}, {y.view({1, 64})}};
  expect_unsupported({"slices[0].y is f32", "f16"}, [&] {
    lora_apply(ctx, slices, c.x.view({1, 64}), two, two, c.batch);
  });
  EXPECT_TRUE(c.h.untouched(0, 8));
}

TEST_F(LoraCudaErrors, NameTheWorkspaceThePlanAndTheDevice) {
  const LoraStream stream(cuda_context().device, 1 << 20, false);
  const ExecContext& ctx = stream.ctx();
  const SmallCall c;
  const TensorView h = c.h.view({1, 8});
  const ConstTensorView x = c.x.view({1, 64}), w = c.w.view({1, 8, 64});
  std::vector<float> host(64);
  expect_invalid({"y is on cpu"}, [&] {
    lora_shrink(ctx, host_view(host.data(), {1, 8}), x, w, c.batch);
  });
  LoraTable on_cpu = LoraTable::from_stack(w, LoraLayout::kRankMajor);
  on_cpu.device = {};
  expect_invalid({"is on cpu"}, [&] { lora_shrink(ctx, h, x, on_cpu, 0, c.batch); });

  // The memory is large enough in every case; the views are not.
  const auto needed = static_cast<int64_t>(lora_plan_bytes(1, 8));
  const DeviceBuffer<uint8_t> memory(size_t(4 * needed + 512));
  const TensorView plan = memory.view({needed});
  const auto make = [&](const TensorView& to) { lora_plan(ctx, to, c.batch, 1, 1, 8); };
  expect_invalid({"plan.size(0) is"}, [&] { make(plan.narrow(0, 0, needed - 1)); });
  expect_unsupported({"plan is f32"},
                     [&] { make(TensorView(plan.raw(), DType::kFloat32, ctx.device, {needed})); });
  expect_invalid({"plan is on cpu"},
                 [&] { make(TensorView(plan.raw(), DType::kUInt8, {}, {needed})); });
  ASSERT_FALSE(HasFailure());  // without checks the next call would spoil the device for all others
  expect_invalid({"plan", "256"}, [&] { make(memory.view({needed + 1}).narrow(0, 1, needed)); });
  make(plan);
  LoraBatch planned = c.batch;
  planned.plan = plan.narrow(0, 0, needed - 1);
  expect_invalid({"plan.size(0) is"}, [&] { lora_shrink(ctx, h, x, w, planned); });
  EXPECT_TRUE(c.h.untouched(0, 8));
  planned.plan = plan;
  const LoraStream bare(ctx.device, 0, false);
  expect_error(ErrorCode::kOutOfMemory, {"workspace"},
               [&] { lora_shrink(bare.ctx(), h, x, w, planned); });
  ExecContext none = ctx;
  none.workspace = nullptr;
  expect_invalid({"lora_shrink", "workspace"}, [&] { lora_shrink(none, h, x, w, planned); });
  EXPECT_TRUE(c.h.untouched(0, 8));
  lora_shrink(ctx, h, x, w, planned);
  EXPECT_EQ(c.h.download(), std::vector<float>(8, 0.0f));
}

}  // namespace
}  // namespace heddle::testing
