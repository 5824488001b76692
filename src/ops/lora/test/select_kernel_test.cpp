// Which kernels run a call on a GPU, decided without one.
#include "ops/lora/run/select_kernel.h"

#include <array>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "core/math.h"
#include "ops/lora_device/plan/make_plan.h"
#include "ops/lora_device/plan/plan_bytes.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

constexpr int64_t kExchange = 16 << 20;

/// One slice of `out` outputs, 8 adapters, where all is aligned.
LoraCall call_of(int64_t tokens, int64_t in, int64_t out, int rank) {
  return {.num_slots = 8,
          .max_rank = rank,
          .used_rank = rank,
          .tokens = tokens,
          .input_features = in,
          .num_outputs = out,
          .output_items = ceil_div(out, 256),
          .input_vectors = true,
          .entries = true,
          .vectors = true,
          .y_vectors = true,
          .exchange_bytes = kExchange};
}

enum Changes : unsigned {
  kUnaligned = 1,
  kNoEntries = 2,
  kNoExchange = 4,
  kShrinkAlone = 8,
  kExpandAlone = 16,
  kLongStrides = 32,
  kManySlots = 64,
  kNarrowY = 128,
};

LoraCall changed(LoraCall call, unsigned changes) {
  if (changes & kUnaligned) call.vectors = call.input_vectors = false;
  if (changes & kNoEntries) call.entries = false;
  if (changes & kNoExchange) call.exchange_bytes = 0;
  if (changes & kShrinkAlone) call.halves = LoraHalves::kShrink;
  if (changes & kExpandAlone) call.halves = LoraHalves::kExpand;
  if (changes & kLongStrides) call.int32_strides = false;
  if (changes & kManySlots) call.num_slots = 256;
  if (changes & kNarrowY) call.y_vectors = false;
  return call;
}

struct Row {
  int64_t tokens, in, out;
  int rank;
  unsigned changes;
  const char* choice;
};

TEST(LoraSelectKernel, KeepsTheTable) {
  const Row rows[] = {
      {1, 4096, 4096, 16, 0, "fused aligned rank<=16 blocks=16 one_item_per_block"},
      {8, 4096, 4096, 16, 0, "fused aligned rank<=16 blocks=128 one_item_per_block"},
      {32, 4096, 4096, 16, 0, "fused aligned rank<=16 blocks=144 one_item_per_block"},
      {32, 4096, 6144, 16, kManySlots, "fused aligned rank<=16 blocks=264"},
      {32, 14336, 4096, 64, kManySlots, "fused aligned rank>16 blocks=264"},
      {256, 4096, 28672, 16, kManySlots, "fused aligned rank<=16 blocks=264"},
      {256, 4096, 28672, 64, kManySlots, "fused aligned rank>16 blocks=264"},
      {1, 4096, 4096, 17, 0, "fused aligned rank>16 blocks=16 one_item_per_block"},
      {8, 4096, 1024, 8, kUnaligned, "fused unaligned rank<=16 blocks=64 one_item_per_block"},
      {256, 4096, 28672, 16, kUnaligned | kManySlots, "fused unaligned rank<=16 blocks=264"},
      {8, 4096, 4096, 64, kUnaligned, "fused unaligned rank>16 blocks=256 one_item_per_block"},
      {8, 4096, 4096, 65, kUnaligned, "fused general rank>16 blocks=264"},
      {256, 4096, 28672, 64, kUnaligned | kManySlots, "fused general rank>16 blocks=264"},
      {8, 4096, 4096, 16, kNoEntries, "fused general rank<=16 blocks=128 one_item_per_block"},
      {8, 4096, 4096, 64, kUnaligned | kNoEntries,
       "fused general rank>16 blocks=256 one_item_per_block"},
      {8, 4096, 4096, 16, kLongStrides, "two launches aligned blocks=64,128"},
      {8, 4096, 4096, 16, kNoExchange, "two launches aligned blocks=64,128"},
      {8, 4096, 4096, 16, kUnaligned | kNoExchange, "two launches general blocks=64,128"},
      {256, 4096, 4096, 64, kNoExchange, "two launches aligned blocks=264,264"},
      {200, 4096, 4096, 128, kNoExchange,
       "grouped aligned rank<=512 shrink_sm90 tiles=2 passes=2 max_split=8 expand blocks=132"},
      {8, 4096, 16, 16, kShrinkAlone, "two launches aligned blocks=64,8"},
      {8, 16, 4096, 16, kExpandAlone, "two launches aligned blocks=8,128"},
      {256, 4096, 16, 16, kShrinkAlone, "two launches aligned blocks=184,23"},
      {300, 4096, 16, 16, kShrinkAlone,
       "grouped aligned rank<=16 shrink_sm90 tiles=1 passes=1 max_split=8 expand blocks=264"},
      {300, 16, 4096, 16, kExpandAlone,
       "grouped aligned rank<=512 shrink_sm90 tiles=1 passes=1 max_split=1 expand blocks=132"},
      {300, 16, 4096, 16, kUnaligned | kExpandAlone,
       "grouped general rank<=512 shrink tiles=1 passes=1 max_split=1 expand blocks=264"},
      {127, 64, 4096, 512, 0, "fused aligned rank>16 blocks=264"},
      {128, 64, 4096, 65, kUnaligned, "fused general rank>16 blocks=240 one_item_per_block"},
      {128, 64, 4096, 64, kUnaligned, "fused unaligned rank>16 blocks=240 one_item_per_block"},
      {141, 153, 31232, 494, kUnaligned,
       "grouped general rank<=512 shrink tiles=2 passes=6 max_split=1 expand blocks=264"},
      {200, 4096, 4096, 128, 0, "fused aligned rank>16 blocks=264"},
      {200, 4096, 4096, 128, kNarrowY, "fused aligned rank>16 blocks=264"},
      {257, 4096, 4096, 16, 0,
       "grouped aligned rank<=16 shrink_sm90 tiles=1 passes=1 max_split=8 expand blocks=264"},
      {257, 41, 4096, 8, kUnaligned, "fused windows general rank<=16 blocks=132"},
      {375, 41, 4096, 8, kUnaligned, "fused windows general rank<=16 blocks=132"},
      {4096, 41, 4096, 8, kUnaligned,
       "grouped general rank<=512 shrink tiles=1 passes=1 max_split=1 expand blocks=264"},
      {375, 16384, 4096, 100, kUnaligned,
       "grouped general rank<=512 shrink tiles=2 passes=2 max_split=8 expand blocks=264"},
      {375, 41, 4096, 8, kNarrowY, "fused windows general rank<=16 blocks=132"},
      {375, 41, 4096, 8, kUnaligned | kNoExchange,
       "grouped general rank<=512 shrink tiles=1 passes=1 max_split=1 expand blocks=264"},
      {375, 41, 4096, 8, kUnaligned | kLongStrides,
       "grouped general rank<=512 shrink tiles=1 passes=1 max_split=1 expand blocks=264"},
      {512, 4096, 6144, 64, 0,
       "grouped aligned rank<=64 shrink_sm90 tiles=1 passes=2 max_split=8 expand_stream_sm90 "
       "blocks=264"},
      {2048, 4096, 28672, 16, 0,
       "grouped aligned rank<=16 shrink_sm90 tiles=1 passes=1 max_split=8 expand_stream_sm90 "
       "blocks=264"},
      {2048, 4096, 28672, 64, 0,
       "grouped aligned rank<=64 shrink_sm90 tiles=2 passes=1 max_split=8 expand_stream_sm90 "
       "blocks=264"},
      {8192, 4096, 28672, 512, 0,
       "grouped aligned rank<=512 shrink_sm90 tiles=4 passes=3 max_split=4 expand blocks=132"},
      {8192, 4096, 28672, 16, kUnaligned,
       "grouped general rank<=512 shrink tiles=1 passes=1 max_split=8 expand blocks=264"},
  };
  for (const Row& row : rows) {
    const LoraCall call = changed(call_of(row.tokens, row.in, row.out, row.rank), row.changes);
    std::ostringstream choice, described;
    choice << select_lora_kernel(call, select_lora_route(call, {90, 132}), {90, 132});
    described << call << " changes=" << row.changes;
    EXPECT_EQ(choice.str(), row.choice) << described.str();
  }
}

TEST(LoraSelectKernel, AWindowIsFusedWhereTheExchangeHasRoom) {
  LoraCall call = call_of(200, 4096, 4096, 16);
  EXPECT_EQ(select_window_route(call), LoraRoute::kFused);
  call.exchange_bytes = 0;
  EXPECT_EQ(select_window_route(call), LoraRoute::kHalves);
}

TEST(LoraSelectKernel, WindowsOfOneLaunchShareTheChip) {
  LoraCall call = call_of(512, 512, 1024, 8);
  const auto choose = [&] { return select_lora_kernel(call, LoraRoute::kFusedWindows, {90, 132}); };
  const LoraChoice two = choose();
  call.tokens = 256 * 1000;
  const LoraChoice thousand = choose();
  EXPECT_TRUE(two.is_general && thousand.is_general);
  EXPECT_EQ(two.fused.num_blocks, 92);
  EXPECT_EQ(thousand.fused.num_blocks, 1);
  EXPECT_NE(two, thousand);
  EXPECT_EQ(two, LoraChoice(two));
}

TEST(LoraSelectKernel, APlanGrowsWithTheBatch) {
  EXPECT_TRUE(has_grouped_plan(128));
  EXPECT_FALSE(has_grouped_plan(127));
}

/// What a plan's tag is made of.
struct PlanOf {
  struct Array {
    int64_t place = 0, size = 0, stride = 0;  // bytes into a buffer, elements; size 0: absent
    bool is_int64 = false;
  };
  std::array<Array, 5> arrays{};
  int64_t num_tokens = 0;
  int32_t num_slots = 0, max_rank = 0;

  static PlanOf random() {
    using testing::pick;
    using testing::random_int;
    PlanOf plan;
    for (Array& a : plan.arrays) {
      if (random_int(0, 3) > 0)
        a = {8 * random_int(0, 7), random_int(1, 40), 1, pick({false, true})};
      a.stride = pick<int64_t>({1, 1, 2, 3, 0, -1});
    }
    plan.num_tokens = random_int(1, 3000);
    plan.num_slots = static_cast<int32_t>(random_int(1, 200));
    plan.max_rank = static_cast<int32_t>(random_int(1, 512));
    return plan;
  }
  /// One thing becomes another.
  void change() {
    using testing::random_int;
    Array& a = arrays[size_t(random_int(0, 4))];
    if (a.size == 0) {
      a.size = 1;  // the array is given now
      return;
    }
    switch (random_int(0, 7)) {
      case 0: a.place += 4; break;
      case 1: a.size += random_int(1, 9); break;
      case 2: a.stride += random_int(1, 3); break;
      case 3: a.is_int64 = !a.is_int64; break;
      case 4: a.size = 0; break;
      case 5: num_tokens += random_int(1, 99); break;
      case 6: num_slots += static_cast<int32_t>(random_int(1, 9)); break;
      default: max_rank += static_cast<int32_t>(random_int(1, 9));
    }
  }
  [[nodiscard]] uint32_t tag() const {
    static const std::array<std::byte, 64> memory{};
    const auto view = [](const Array& a) -> ConstTensorView {
      if (a.size == 0) return {};
      const std::array<int64_t, 1> shape{a.size}, strides{a.stride};
      return {memory.data() + a.place, a.is_int64 ? DType::kInt64 : DType::kInt32, Device{}, shape,
              strides};
    };
    return plan_tag({.slot_ids = view(arrays[0]),
                     .seg_starts = view(arrays[1]),
                     .seg_ends = view(arrays[2]),
                     .seg_slots = view(arrays[3]),
                     .seg_lens = view(arrays[4])},
                    num_tokens, num_slots, max_rank);
  }
};

TEST(LoraPlanTag, IsAnotherForOtherArraysStridesDtypesAndSizes) {
  for (int i = 0; i < testing::small_or(1000, 10'000); ++i) {
    const PlanOf own = PlanOf::random();
    PlanOf other = own;
    EXPECT_EQ(other.tag(), own.tag());
    EXPECT_EQ(own.tag() & 1u, 0u);  // the bit of mixed ranks
    EXPECT_NE(own.tag(), 0u);       // as of memory that was never written
    other.change();
    ASSERT_NE(other.tag(), own.tag()) << "round " << i;
  }
}

TEST(LoraPlanTag, OfAnArrayElsewhereInTheBatchIsAnother) {
  std::set<uint32_t> tags;
  for (size_t k = 0; k < 5; ++k) {
    PlanOf plan{.num_tokens = 8, .num_slots = 2, .max_rank = 16};
    plan.arrays[k] = {0, 8, 1, false};
    tags.insert(plan.tag());
  }
  EXPECT_EQ(tags.size(), 5u);
}

}  // namespace
}  // namespace heddle
