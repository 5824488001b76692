// LoRA in captured graphs, on streams side by side, far apart in memory, and where a launch fails.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.h"
#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class LoraReplay : public CudaTest {
 protected:
  [[nodiscard]] Device device() const { return cuda_context().device; }
};

TEST_F(LoraReplay, SeesIdsRanksPointersAndScalesThatChangedInPlace) {
  for (const bool exchange : {false, true}) {
    for (const bool plan : {false, true}) {
      SCOPED_TRACE(std::string(exchange ? "one launch" : "two launches") + (plan ? ", plan" : ""));
      DeviceSite<bfloat16> site(small_or(9, 300), small_or(520, 2104), {192, 65, 256},
                                small_or(24, 130), exchange != plan);
      const LoraStream stream(device(), site.workspace_bytes(), exchange);
      const ExecContext ctx = stream.ctx_of_chip(small_or(1, 40));
      site.apply(ctx, plan);  // loads the kernels
      const Graph graph(stream, [&] { site.apply(ctx, plan); });
      std::vector<uint16_t> last;
      for (int round = 0; round < small_or(3, 4); ++round) {
        site.change();
        site.restart();
        graph.launch();
        const auto got = site.bits();
        ASSERT_EQ(got, site.expected_bits(device())) << "round " << round;
        ASSERT_NE(got, last) << "round " << round;
        last = got;
      }
      site.remove_all();
      site.restart();
      graph.launch();
      EXPECT_EQ(site.bits(), site.start_bits());
      EXPECT_TRUE(site.guards_intact());
    }
  }
}

/// Adapters of one slice in two AdapterTables, and y to add to.
struct TableSite {
  static constexpr int64_t kTokens = 9, kIn = 520, kOut = 264, kRank = 16;
  static constexpr int64_t kFeaturesOfA[] = {kIn}, kFeaturesOfB[] = {kOut};
  const LoraStream& stream;
  AdapterTable a, b;
  DeviceBuffer<half> x{random_normal<half>(kTokens * kIn)};
  DeviceBuffer<half> weights_a{random_normal<half>(2 * kRank * kIn)};
  DeviceBuffer<half> weights_b{random_normal<half>(2 * kRank * kOut)};
  DeviceBuffer<int32_t> ids{std::vector<int32_t>(kTokens, 1)};
  std::vector<half> start = random_normal<half>(kTokens * kOut);
  DeviceBuffer<half> y{start};

  TableSite(const LoraStream& stream, LoraAlignment fit)
      : stream(stream),
        a(stream.ctx(), 2, kFeaturesOfA, kRank, DType::kFloat16, LoraLayout::kRankMajor, fit),
        b(stream.ctx(), 2, kFeaturesOfB, kRank, DType::kFloat16, LoraLayout::kRankMinor, fit) {}

  /// Puts one of two adapters into the slot of all rows.
  void set(int64_t which, int64_t rank = kRank) {
    a.set(stream.ctx(), 1, 0,
          ConstTensorView(weights_a.view({2, kRank, kIn}).narrow(0, which, 1).raw(),
                          DType::kFloat16, x.device(), {rank, kIn}));
    const std::array<int64_t, 2> shape{kOut, rank}, strides{kRank, 1};
    b.set(stream.ctx(), 1, 0,
          ConstTensorView(weights_b.view({2, kOut, kRank}).narrow(0, which, 1).raw(),
                          DType::kFloat16, x.device(), shape, strides),
          0.5f);
  }
  void clear() {
    a.clear(stream.ctx(), 1);
    b.clear(stream.ctx(), 1);
  }
  void apply() {
    const LoraSlice slice{y.view({kTokens, kOut})};
    lora_apply(stream.ctx_of_chip(1), {&slice, 1}, x.view({kTokens, kIn}), a.view(), b.view(),
               LoraBatch::from_ids(ids.view({kTokens})));
  }
  [[nodiscard]] std::vector<uint16_t> bits() const {
    std::vector<uint16_t> result;
    for (const half v : y.download()) {
      result.push_back(0);
      std::memcpy(&result.back(), &v, sizeof(v));
    }
    return result;
  }
};

TEST_F(LoraReplay, SeesAdaptersAddedReplacedAndRemovedInTheOrderOfTheStream) {
  for (const LoraAlignment fit : {LoraAlignment::kNone, LoraAlignment::k16Bytes}) {
    const LoraStream stream(device(), 1 << 20, true);
    TableSite site(stream, fit);
    site.apply();
    const Graph graph(stream, [&] { site.apply(); });
    site.y.upload(site.start);
    const auto untouched = site.bits();
    graph.launch();
    EXPECT_EQ(site.bits(), untouched) << "an empty table";

    std::vector<std::vector<uint16_t>> alone;  // of each adapter
    for (const int64_t rank : {TableSite::kRank, int64_t{8}}) {
      for (const int64_t which : {0, 1}) {
        site.set(which, rank);
        site.y.upload(site.start);
        graph.launch();
        alone.push_back(site.bits());
        ASSERT_NE(alone.back(), untouched);
      }
    }
    EXPECT_NE(alone[0], alone[1]);
    EXPECT_NE(alone[0], alone[2]);

    // Without a wait in between: each replay sees the table as it was when it was launched.
    for (size_t i = 0; i < alone.size(); ++i) {
      site.y.upload(site.start);
      site.clear();
      graph.launch();
      site.set(static_cast<int64_t>(i % 2), i < 2 ? TableSite::kRank : 8);
      graph.launch();
      site.clear();
      for (int extra = 0; extra < 5; ++extra) graph.launch();
      EXPECT_EQ(site.bits(), alone[i]) << "adapter " << i;
    }
    EXPECT_TRUE(site.y.guards_intact());
  }
}

/// Applies again and again without waiting; y grows by the same delta each time, so one wrong call
/// shows in the end.
TEST_F(LoraReplay, TwoStreamsAtOnceHaveTheBitsOfOne) {
  const int calls = small_or(4, 50);
  for (int round = 0; round < small_or(1, 3); ++round) {
    DeviceSite<bfloat16> sites[] = {
        {random_int(1, small_or(9, 300)), small_or(520, 4608), {512, 264}, 32, round % 2 == 0},
        {random_int(1, small_or(9, 40)), 1104, {64, 72, 1024}, 16, round % 3 == 0}};
    std::vector<std::unique_ptr<LoraStream>> streams;
    std::vector<std::vector<uint16_t>> want;
    for (auto& site : sites) {
      streams.push_back(std::make_unique<LoraStream>(device(), site.workspace_bytes(), true));
      const LoraStream alone(device(), site.workspace_bytes(), false);
      site.restart();
      for (int i = 0; i < calls; ++i) site.apply(alone.ctx());
      want.push_back(site.bits());
      site.restart();
    }
    for (int i = 0; i < calls; ++i) {
      for (size_t s = 0; s < 2; ++s)
        sites[s].apply(streams[s]->ctx_of_chip(i % 2 == 0 ? 24 : 1000));
    }
    for (size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(sites[s].bits(), want[s]) << "round " << round << ", stream " << s;
      ASSERT_TRUE(sites[s].guards_intact());
    }
  }
}

/// Rows of x, of y and weights of a slot that begin more than 2^31 elements after the first, on
/// the device alone.
void expect_offsets_beyond_2_to_31(const LoraStream& stream, int64_t stride) {
  constexpr int64_t kIn = 72, kOut = 40, kRank = 8, kRows = 3, kSlots = 3;
  const int64_t elements = 2 * stride + kIn * kRank;
  using Far = DeviceBuffer<half>;
  Far x(size_t(elements), Far::Guards::kNone), y(size_t(elements), Far::Guards::kNone),
      weights(size_t(elements), Far::Guards::kNone);
  const auto x_near = random_normal<half>(kRows * kIn);
  const auto a_near = random_normal<half>(kSlots * kRank * kIn);
  const auto b_near = random_normal<half>(kSlots * kOut * kRank);
  const auto scatter = [&](Far& far, const std::vector<half>& near, int64_t size) {
    for (int64_t i = 0; i < 3; ++i) {
      far.upload(std::span(near).subspan(size_t(i * size), size_t(size)), size_t(i * stride));
    }
  };
  const auto rows = [&](const Far& far, int64_t width) {
    const std::array<int64_t, 2> shape{kRows, width}, strides{stride, 1};
    return TensorView(reinterpret_cast<std::byte*>(far.data()), DType::kFloat16, far.device(),
                      shape, strides);
  };
  const auto stack = [&](int64_t outer, int64_t inner) {
    const std::array<int64_t, 3> shape{kSlots, outer, inner}, strides{stride, inner, 1};
    return ConstTensorView(reinterpret_cast<const std::byte*>(weights.data()), DType::kFloat16,
                           weights.device(), shape, strides);
  };
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>{2, 0, 2});
  const LoraBatch batch = LoraBatch::from_ids(ids.view({kRows}));
  const ExecContext& ctx = stream.ctx();

  const DeviceBuffer<half> near_x(x_near), near_a(a_near), near_b(b_near), near_y(kRows * kOut);
  const DeviceBuffer<float> h(kRows * kRank), near_h(kRows * kRank);
  lora_shrink(ctx, near_h.view({kRows, kRank}), near_x.view({kRows, kIn}),
              near_a.view({kSlots, kRank, kIn}), batch);
  lora_expand(ctx, near_y.view({kRows, kOut}), near_h.view({kRows, kRank}),
              near_b.view({kSlots, kOut, kRank}), batch, 0, 1.0f, false);

  scatter(x, x_near, kIn);
  scatter(weights, a_near, kRank * kIn);
  lora_shrink(ctx, h.view({kRows, kRank}), rows(x, kIn), stack(kRank, kIn), batch);
  EXPECT_EQ(h.download(), near_h.download());
  scatter(weights, b_near, kOut * kRank);
  lora_expand(ctx, rows(y, kOut), h.view({kRows, kRank}), stack(kOut, kRank), batch, 0, 1.0f,
              false);
  const std::vector<half> want = near_y.download();
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<half> got = y.download(size_t(row * stride), kOut);
    EXPECT_TRUE(std::memcmp(got.data(), want.data() + row * kOut, kOut * sizeof(half)) == 0) << row;
    const int64_t after = row * stride + kOut;
    const int64_t end = row + 1 < kRows ? after + stride - kOut : elements;
    EXPECT_TRUE(y.untouched(size_t(after), size_t(end - after))) << row;
  }

  // The weight by address: the layer of a page that begins after 2^31 elements.
  const DeviceBuffer<int64_t> pointers(
      std::vector<int64_t>(kSlots, reinterpret_cast<int64_t>(weights.data())));
  LoraTable table = LoraTable::from_pointers(pointers.view({kSlots}), DType::kFloat16,
                                             LoraLayout::kRankMinor, kRank, kOut);
  table.element_offset = 2 * stride;
  y.poison();
  lora_expand(ctx, rows(y, kOut), h.view({kRows, kRank}), table, 0, kOut, batch, 0, 1.0f, false);
  const std::vector<half> got = y.download(size_t(2 * stride), kOut);
  EXPECT_TRUE(std::memcmp(got.data(), want.data() + 2 * kOut, kOut * sizeof(half)) == 0);
}

TEST_F(LoraReplay, OffsetsGoBeyond2To31Elements) {
  for (const bool exchange : {false, true}) {
    const LoraStream stream(device(), 1 << 20, exchange);
    for (const int64_t odd : {8, 9}) {  // rows at multiples of 16 bytes, or not
      expect_offsets_beyond_2_to_31(stream, small_or(int64_t{1} << 12, (int64_t{1} << 30)) + odd);
    }
  }
}

TEST_F(LoraReplay, TheCallWhoseLaunchFailsReportsIt) {
  DeviceSite<half> site(5, 520, {64, 72}, 16, false);
  const auto want = site.expected_bits(device());
  for (const bool exchange : {false, true}) {
    const LoraStream stream(device(), site.workspace_bytes(), exchange);
    const ExecContext ctx = stream.ctx_of_chip(1);
    for (const bool plan : {false, true}) {
      site.restart();
      const LoraBatch batch = plan ? site.planned(stream.ctx()) : site.batch();
      // A wait is not allowed in a capture: from then on every launch into the stream fails, until
      // the capture ends.
      HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
      EXPECT_NE(cudaStreamSynchronize(stream.get()), cudaSuccess);
      cudaGetLastError();
      expect_error(ErrorCode::kCuda, {"cudaErrorStreamCaptureInvalidated"},
                   [&] { site.apply(ctx, batch); });
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "nothing is left for the next call";
      cudaGraph_t graph = nullptr;
      EXPECT_NE(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
      cudaGetLastError();
      EXPECT_EQ(site.bits(), site.start_bits());
      site.apply(ctx, batch);
      EXPECT_EQ(site.bits(), want);
    }
  }
}

}  // namespace
}  // namespace heddle::testing
