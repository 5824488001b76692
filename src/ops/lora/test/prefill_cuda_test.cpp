// Long batches on a GPU: a row has the bits that it has in a short one, whatever way the batch
// goes.
#include <algorithm>
#include <vector>

#include "cuda/check.h"
#include <gtest/gtest.h>

#include "graph_timing_cuda.h"
#include "ops/lora/run/run_on_gpu.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/grouped/select_grouped.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class W>
class LoraPrefillCuda : public CudaTest {
 protected:
  [[nodiscard]] Device device() const { return cuda_context().device; }
};
using HalfTypes = ::testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(LoraPrefillCuda, HalfTypes);

/// Segments of random lengths in any order, with gaps, some of them empty or of no adapter.
struct RandomSegments {
  DeviceBuffer<int32_t> starts, ends, slots;

  explicit RandomSegments(int64_t num_tokens) : RandomSegments(draw(num_tokens)) {}
  [[nodiscard]] LoraBatch batch() const {
    const auto n = static_cast<int64_t>(starts.size());
    return LoraBatch::from_segments(starts.view({n}), ends.view({n}), slots.view({n}));
  }

 private:
  struct Values {
    std::vector<int32_t> starts, ends, slots;
  };
  explicit RandomSegments(const Values& v) : starts(v.starts), ends(v.ends), slots(v.slots) {}
  static Values draw(int64_t num_tokens) {
    Values v;
    const int64_t longest = random_int(1, num_tokens);
    for (int64_t begin = random_int(0, 9); begin < num_tokens;) {
      const int64_t end = std::min(num_tokens, begin + random_int(0, longest));
      v.starts.insert(v.starts.begin(), static_cast<int32_t>(begin));
      v.ends.insert(v.ends.begin(), static_cast<int32_t>(end));
      v.slots.insert(v.slots.begin(), static_cast<int32_t>(random_int(-1, 6)));
      begin = end + random_int(0, 1) * random_int(0, 9);
    }
    return v;
  }
};

/// A call of which the route is given; kFused goes window by window.
struct RoutedCall : LoraSite {
  LoraGpuOptions options;
};

LoraCall described(const LoraSite& site) { return describe({}, site); }

/// A site whose calls can be sent through windows, too.
template <class W>
struct PrefillSite {
  DeviceSite<W> site;
  std::vector<LoraSlice> slices = site.slices();
  LoraTable a = site.a(), b = site.b();
  LoraBatch batch = site.batch();

  PrefillSite(int64_t num_tokens, int64_t in, std::vector<int64_t> outs, int max_rank,
              bool is_regular = true)
      : site(num_tokens, in, std::move(outs), max_rank, is_regular) {}

  [[nodiscard]] RoutedCall call(LoraRoute route, bool accumulate = true) const {
    return {{.slices = slices, .input = site.x(), .a = &a, .b = &b, .accumulate = accumulate},
            {.route = route}};
  }
  [[nodiscard]] std::vector<uint16_t> run(const ExecContext& ctx, const RoutedCall& call) {
    site.restart();
    run_on_gpu(ctx, "lora_apply", call, batch, call.options);
    return site.bits();
  }
};

struct Shape {
  int64_t tokens, in;
  std::vector<int64_t> outs;
  int max_rank;
  bool is_regular = true;
};

/// Every kernel: one chunk and several to a strand, one rank pass and more, ranks up to 16, 64 and
/// 512, fewer and more than four slices, tails of features, outputs and rows. Each run draws some
/// of them.
std::vector<Shape> shapes() {
  if (small_sizes()) {
    return {{300, 72, {64, 8}, 16},
            {260, 520, {72}, 64},
            {270, 136, {8, 8, 8, 8, 24}, 200},
            {260, 71, {65, 3}, 21, false},
            {270, 521, {300, 1}, 9, false}};
  }
  std::vector<Shape> all = {{300, 64, {64}, 8},
                            {1000, 520, {192, 64, 72}, 16},
                            {700, 4096, {1024, 256, 256}, 64},
                            {3000, 1104, {520}, 16},
                            {5000, 512, {136, 1032}, 32},
                            {600, 4608, {264, 64}, 64},
                            {400, 9224, {192}, 24},
                            {900, 2056, {72, 1088, 8, 64, 520}, 136},
                            {500, 1544, {328, 80}, 512},
                            {9000, 64, {64}, 64},
                            {3200, 81, {134, 5}, 102, false},
                            {1000, 13, {66, 6}, 10, false},
                            {700, 2549, {3, 1065, 4, 1}, 180, false},
                            {3000, 2, {1522, 18, 26, 19, 33}, 119, false},
                            {5000, 512, {257}, 40, false},
                            {600, 4609, {33, 264}, 47, false},
                            {400, 9223, {191}, 24, false},
                            {500, 1543, {333}, 512, false},
                            {900, 64, {64, 32}, 1, false}};
  std::ranges::shuffle(all, rng());
  all.resize(7);
  return all;
}

TYPED_TEST(LoraPrefillCuda, HasTheBitsOfWindows) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(::testing::Message() << shape.tokens << " tokens, in_features " << shape.in
                                      << ", ranks up to " << shape.max_rank);
    PrefillSite<TypeParam> p(shape.tokens, shape.in, shape.outs, shape.max_rank, shape.is_regular);
    const LoraStream stream(this->device(), p.site.workspace_bytes(), false);
    const ConstTensorView row_scale = p.batch.row_scale;
    for (const bool has_segments : {false, true}) {
      const RandomSegments segments(shape.tokens);
      if (has_segments) p.batch = segments.batch();
      if (has_segments && random_int(0, 1) == 0) p.batch.row_scale = row_scale;
      const bool accumulate = !has_segments || random_int(0, 1) == 0;
      const auto want = p.run(stream.ctx(), p.call(LoraRoute::kFused, accumulate));
      ASSERT_TRUE(can_be_grouped(described(p.call(LoraRoute::kGrouped))));
      ASSERT_TRUE(!shape.is_regular || described(p.call(LoraRoute::kGrouped)).y_vectors);
      for (const int num_sms : {1, 7, 40, 1000}) {
        ExecContext ctx = stream.ctx_of_chip(num_sms);
        EXPECT_TRUE(p.run(ctx, p.call(LoraRoute::kGrouped, accumulate)) == want)
            << num_sms << " SMs";
        ctx.info.compute_capability = 86;  // the portable kernels, and no early start
        EXPECT_TRUE(p.run(ctx, p.call(LoraRoute::kGrouped, accumulate)) == want)
            << num_sms << " SMs, portable";
      }
    }
    ASSERT_TRUE(p.site.guards_intact());
    ASSERT_FALSE(this->HasFailure());
  }
}

TYPED_TEST(LoraPrefillCuda, WindowsAtOnceHaveTheBitsOfWindows) {
  const std::vector<Shape> shapes = {{small_or(270, 400), 41, {5, 3}, 8, false},
                                     {small_or(520, 1000), small_or(72, 520), {192, 64, 72}, 16},
                                     {small_or(300, 2000), 13, {66, 6}, 33, false},
                                     {small_or(260, 700), 100, {small_or(30, 300), 1}, 100, false},
                                     {small_or(257, 513), small_or(71, 1031), {33}, 200, false}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(::testing::Message() << shape.tokens << " tokens, in_features " << shape.in
                                      << ", ranks up to " << shape.max_rank);
    PrefillSite<TypeParam> p(shape.tokens, shape.in, shape.outs, shape.max_rank, shape.is_regular);
    const LoraStream stream(this->device(), p.site.workspace_bytes(), true);
    for (const bool has_segments : {false, true}) {
      const RandomSegments segments(shape.tokens);
      if (has_segments) p.batch = segments.batch();
      const auto want = p.run(stream.ctx(), p.call(LoraRoute::kFused));
      RoutedCall call = p.call(LoraRoute::kFusedWindows);
      for (const int num_sms : {1, 7, 40, 1000}) {
        EXPECT_TRUE(p.run(stream.ctx_of_chip(num_sms), call) == want) << num_sms << " SMs";
      }
      call.options.spin_limit = 0;
      EXPECT_TRUE(p.run(stream.ctx(), call) == want) << "without waiting";
    }
    p.batch = p.site.batch();
    p.site.remove_all();
    EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kFusedWindows)) == p.site.start_bits());
    ASSERT_TRUE(p.site.guards_intact());
    ASSERT_FALSE(this->HasFailure());
  }
}

/// Fewer rows than a window has, of high ranks.
TYPED_TEST(LoraPrefillCuda, AShortBatchHasTheBitsOfAWindow) {
  for (const bool is_regular : {false, true}) {
    PrefillSite<TypeParam> p(small_or(128, 141), small_or(72, 1528), {small_or(40, 640), 24},
                             small_or(72, 200), is_regular);
    for (const bool has_exchange : {false, true}) {
      const LoraStream stream(this->device(), p.site.workspace_bytes(), has_exchange);
      const auto want = p.run(stream.ctx(), p.call(LoraRoute::kFused));
      ASSERT_TRUE(can_be_grouped(described(p.call(LoraRoute::kGrouped))));
      EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kGrouped)) == want);
    }
    EXPECT_TRUE(p.site.guards_intact());
  }
}

TYPED_TEST(LoraPrefillCuda, APlanServesWindowsAndPrefill) {
  PrefillSite<TypeParam> p(small_or(300, 2000), small_or(72, 1104), {64, 192}, 64);
  const LoraStream stream(this->device(), p.site.workspace_bytes(), true);
  const auto want = p.run(stream.ctx(), p.call(LoraRoute::kFused));
  ASSERT_NE(want, p.site.start_bits());
  p.batch = p.site.planned(stream.ctx());
  EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kFused)) == want);
  EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kGrouped)) == want);
}

TYPED_TEST(LoraPrefillCuda, ARowAloneHasTheBitsItHasInABatch) {
  const int64_t tokens = small_or(270, 1000), in = small_or(136, 2104);
  for (const int max_rank : {16, small_or(40, 128)}) {
    PrefillSite<TypeParam> p(tokens, in, {128, 72}, max_rank);
    const LoraStream stream(this->device(), p.site.workspace_bytes(), true);
    const auto want = p.run(stream.ctx(), p.call(LoraRoute::kGrouped));
    p.site.restart();
    const LoraBatch batch = p.site.batch();
    const std::vector<LoraSlice> slices = p.site.slices();
    for (int i = 0; i < small_or(4, 40); ++i) {
      // Rows that were drawn twice would be added to twice.
      const int64_t t = (tokens - 1) * i / small_or(4, 40);
      LoraBatch row = LoraBatch::from_ids(batch.slot_ids.narrow(0, t, 1));
      row.row_scale = batch.row_scale.narrow(0, t, 1);
      std::vector<LoraSlice> of_row;
      for (const LoraSlice& slice : slices) of_row.push_back({slice.y.narrow(0, t, 1)});
      lora_apply(stream.ctx(), of_row, p.site.x().narrow(0, t, 1), p.a, p.b, row);
    }
    const auto got = p.site.bits();
    for (int i = 0; i < small_or(4, 40); ++i) {
      const int64_t t = (tokens - 1) * i / small_or(4, 40);
      size_t first = 0;  // of the slice
      for (const int64_t width : {128, 72}) {
        for (int64_t n = 0; n < width; ++n) {
          const size_t at = first + size_t(t * width + n);
          ASSERT_EQ(got[at], want[at]) << "row " << t << ", output " << n;
        }
        first += size_t(tokens * width);
      }
    }
  }
}

TYPED_TEST(LoraPrefillCuda, ExpandHasTheBitsOfWindows) {
  for (const int max_rank : {16, 64, 208}) {
    const int64_t tokens = small_or(290, 1500);
    PrefillSite<TypeParam> p(tokens, 64, {small_or(72, 1096)}, max_rank);
    const LoraStream stream(this->device(), p.site.workspace_bytes(), false);
    const DeviceBuffer<float> h(random_normal<float>(size_t(tokens * max_rank)));
    const DeviceBuffer<half> narrow_h(random_normal<half>(size_t(tokens * max_rank)));
    for (const bool is_narrow : {false, true}) {
      for (const bool accumulate : {false, true}) {
        RoutedCall call = p.call(LoraRoute::kFused);
        call.a = nullptr;
        call.input = is_narrow ? narrow_h.view({tokens, max_rank}) : h.view({tokens, max_rank});
        call.accumulate = accumulate;
        call.scale = 0.7f;
        const auto want = p.run(stream.ctx(), call);
        call.options.route = LoraRoute::kGrouped;
        ASSERT_TRUE(can_be_grouped(described(call)) && described(call).y_vectors);
        EXPECT_TRUE(p.run(stream.ctx(), call) == want) << "rank " << max_rank;
        EXPECT_TRUE(p.run(stream.ctx_of_chip(3), call) == want) << "rank " << max_rank;
      }
    }
  }
}

TYPED_TEST(LoraPrefillCuda, ShrinkHasTheBitsOfWindows) {
  for (const bool is_regular : {true, false}) {
    for (const int max_rank : {16, 72, small_or(136, 512)}) {
      const int64_t in = small_or(136, is_regular ? 2104 : 2105);
      PrefillSite<TypeParam> p(small_or(290, 600), in, {max_rank}, max_rank, is_regular);
      const LoraStream stream(this->device(), p.site.workspace_bytes(), false);
      for (const bool accumulate : {false, true}) {
        RoutedCall call = p.call(LoraRoute::kFused);
        call.b = nullptr;
        call.accumulate = accumulate;
        call.scale = 0.7f;
        const auto want = p.run(stream.ctx(), call);
        ASSERT_NE(want, p.site.start_bits());
        call.options.route = LoraRoute::kGrouped;
        ASSERT_TRUE(can_be_grouped(described(call)));
        EXPECT_TRUE(p.run(stream.ctx(), call) == want) << "rank " << max_rank;
        EXPECT_TRUE(p.run(stream.ctx_of_chip(3), call) == want) << "rank " << max_rank;
      }
      EXPECT_TRUE(p.site.guards_intact());
    }
  }
}

/// Rows of y that begin one element behind a vector, of each dtype; stacked weights of either
/// layout.
TYPED_TEST(LoraPrefillCuda, EveryLayoutAndDtypeHasTheBitsOfWindows) {
  constexpr int64_t kSlots = 5;
  const int64_t tokens = small_or(270, 1100), in = small_or(70, 1030), out = small_or(37, 301);
  const DeviceBuffer<TypeParam> x(random_normal<TypeParam>(size_t(tokens * in)));
  const DeviceBuffer<float> row_scale(random_normal<float>(size_t(tokens)));
  const RandomSegments segments(tokens);
  LoraBatch batch = segments.batch();
  batch.row_scale = row_scale.view({tokens});
  for (const int64_t rank : {13, small_or(21, 83)}) {
    const DeviceBuffer<TypeParam> a(random_normal<TypeParam>(size_t(kSlots * rank * in)));
    const DeviceBuffer<TypeParam> b(random_normal<TypeParam>(size_t(kSlots * rank * out)));
    const LoraStream stream(this->device(),
                            lora_apply_workspace_bytes(this->device(), tokens, in, 1, int(rank)),
                            false);
    const auto table = [&](const DeviceBuffer<TypeParam>& w, int64_t features, LoraLayout layout) {
      return layout == LoraLayout::kRankMajor
                 ? LoraTable::from_stack(w.view({kSlots, rank, features}), layout)
                 : LoraTable::from_stack(w.view({kSlots, features, rank}), layout);
    };
    const auto expect_same = [&]<class Y>(Y, LoraLayout a_layout, LoraLayout b_layout) {
      const LoraTable a_table = table(a, in, a_layout), b_table = table(b, out, b_layout);
      const std::vector<Y> start = random_normal<Y>(size_t(tokens * (out + 1)));
      std::vector<std::vector<Y>> results;
      for (const LoraRoute route : {LoraRoute::kFused, LoraRoute::kGrouped}) {
        const DeviceBuffer<Y> y(start);
        const LoraSlice slice{y.view({tokens, out + 1}).narrow(1, 1, out)};
        const LoraSite call{
            .slices = {&slice, 1}, .input = x.view({tokens, in}), .a = &a_table, .b = &b_table};
        run_on_gpu(stream.ctx(), "lora_apply", call, batch, {.route = route});
        results.push_back(y.download());
        EXPECT_TRUE(y.guards_intact());
      }
      EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), start.size() * sizeof(Y)), 0)
          << "rank " << rank << ", " << kDType<Y>;
    };
    for (const LoraLayout a_layout : {LoraLayout::kRankMajor, LoraLayout::kRankMinor}) {
      for (const LoraLayout b_layout : {LoraLayout::kRankMajor, LoraLayout::kRankMinor}) {
        expect_same(float{}, a_layout, b_layout);
        expect_same(half{}, a_layout, b_layout);
        expect_same(bfloat16{}, a_layout, b_layout);
      }
    }
  }
}

TYPED_TEST(LoraPrefillCuda, TakesAnyNumberOfRows) {
  const int64_t tokens = small_or(600, 70'000);
  PrefillSite<TypeParam> p(tokens, 64, {16}, 8);
  const LoraStream stream(this->device(), p.site.workspace_bytes(), false);
  EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kGrouped)) ==
              p.run(stream.ctx(), p.call(LoraRoute::kFused)));
  const RandomSegments segments(tokens);
  p.batch = segments.batch();
  EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kGrouped)) ==
              p.run(stream.ctx(), p.call(LoraRoute::kFused)));
  p.batch = p.site.batch();
  p.site.remove_all();
  EXPECT_TRUE(p.run(stream.ctx(), p.call(LoraRoute::kGrouped)) == p.site.start_bits());
}

/// As many slots as are grouped at once, one more, and a row or two of each.
TYPED_TEST(LoraPrefillCuda, TakesAnyNumberOfSlots) {
  for (const int64_t num_slots :
       {cuda::lora::kPlanSlots, cuda::lora::kPlanSlots + 1, small_or(600, 3000)}) {
    constexpr int64_t kIn = 64, kOut = 8, kRank = 8;
    const int64_t tokens = num_slots * 3 / 2;
    const DeviceBuffer<TypeParam> x(random_normal<TypeParam>(size_t(tokens * kIn)));
    const DeviceBuffer<TypeParam> a(random_normal<TypeParam>(size_t(num_slots * kRank * kIn)));
    const DeviceBuffer<TypeParam> b(random_normal<TypeParam>(size_t(num_slots * kOut * kRank)));
    std::vector<int64_t> ids;
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(random_int(-1, num_slots));
    const DeviceBuffer<int64_t> slot_ids(ids);
    const LoraBatch batch = LoraBatch::from_ids(slot_ids.view({tokens}));
    const LoraTable a_table =
        LoraTable::from_stack(a.view({num_slots, kRank, kIn}), LoraLayout::kRankMajor);
    const LoraTable b_table =
        LoraTable::from_stack(b.view({num_slots, kOut, kRank}), LoraLayout::kRankMinor);
    const LoraStream stream(
        this->device(), lora_apply_workspace_bytes(this->device(), tokens, kIn, 1, kRank), false);
    std::vector<std::vector<TypeParam>> results;
    for (const LoraRoute route : {LoraRoute::kFused, LoraRoute::kGrouped}) {
      const DeviceBuffer<TypeParam> y(std::vector<TypeParam>(size_t(tokens * kOut)));
      const LoraSlice slice{y.view({tokens, kOut})};
      const LoraSite call{
          .slices = {&slice, 1}, .input = x.view({tokens, kIn}), .a = &a_table, .b = &b_table};
      ASSERT_TRUE(can_be_grouped(described(call)));
      run_on_gpu(stream.ctx(), "lora_apply", call, batch, {.route = route});
      results.push_back(y.download());
      EXPECT_TRUE(y.guards_intact());
    }
    EXPECT_EQ(
        std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(TypeParam)), 0)
        << num_slots << " slots";
  }
}

TYPED_TEST(LoraPrefillCuda, AReplaySeesIdsRanksAndWeightsThatChangedInPlace) {
  for (const bool has_plan : {false, true}) {
    PrefillSite<TypeParam> p(small_or(280, 1500), small_or(72, 2056), {192, 64}, small_or(24, 64));
    const LoraStream stream(this->device(), p.site.workspace_bytes(), true);
    p.site.apply(stream.ctx(), has_plan);  // loads the kernels
    const RecordedGraph graph(stream.get(), [&] { p.site.apply(stream.ctx(), has_plan); });
    std::vector<uint16_t> last;
    for (int round = 0; round < small_or(3, 6); ++round) {
      p.site.change();
      p.site.restart();
      graph.launch(stream.get());
      const auto got = p.site.bits();
      ASSERT_TRUE(got == p.run(stream.ctx(), p.call(LoraRoute::kFused))) << "round " << round;
      ASSERT_FALSE(got == last) << "round " << round;
      last = got;
    }
    p.site.remove_all();
    p.site.restart();
    graph.launch(stream.get());
    EXPECT_TRUE(p.site.bits() == p.site.start_bits());
    EXPECT_TRUE(p.site.guards_intact());
  }
}

}  // namespace
}  // namespace heddle::testing
