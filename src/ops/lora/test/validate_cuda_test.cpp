// HEDDLE_VALIDATE=1 on a GPU: the bodies of the CPU's tests, and when the arrays of the device are
// looked at.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/check.h"

#include "device_mirror.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "ops/lora/test/validate_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class LoraValidateCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) stream_.emplace(cuda_context().device, 0, true);
  }
  void TearDown() override {
    stream_.reset();
    CudaTest::TearDown();
  }
  [[nodiscard]] const LoraStream& stream() const { return *stream_; }
  [[nodiscard]] LoraRun run() { return {stream_->ctx(), mirror_, LoraSums::kSplit}; }

 private:
  std::optional<LoraStream> stream_;
  DeviceMirror mirror_;
};

TEST_F(LoraValidateCuda, SlotsAreBelowTheirNumber) {
  expect_slots_are_below_their_number<half>(run());
}

TEST_F(LoraValidateCuda, AUsedSlotHasAnAddress) {
  expect_a_used_slot_has_an_address<bfloat16>(run());
}

TEST_F(LoraValidateCuda, EntriesMayLackASlice) { expect_entries_may_lack_a_slice<half>(run()); }

TEST_F(LoraValidateCuda, SegmentsStayWithinTheRowsAndApart) {
  expect_segments_stay_within_the_rows_and_apart<bfloat16>(run());
}

TEST_F(LoraValidateCuda, StartsOfPairsAreInOrder) {
  expect_starts_of_pairs_are_in_order<half>(run());
}

/// A plan of four rows, two slots and rank 1.
TensorView plan_view(const DeviceBuffer<uint8_t>& memory) {
  return memory.view({static_cast<int64_t>(memory.size())});
}

TEST_F(LoraValidateCuda, APlanIsCheckedWithItsBatch) {
  const DeviceBuffer<uint8_t> plan(lora_plan_bytes(4, 1));
  // Every second element counts; a wrong one lies in a gap.
  const DeviceBuffer<int64_t> wrong(std::vector<int64_t>{0, 0, -3, 0, 1, 0, 2}),
      fine(std::vector<int64_t>{0, 9, -3, 9, 1, 9, 1});
  const std::array<int64_t, 1> shape{4}, strides{2};
  const auto make = [&](const DeviceBuffer<int64_t>& ids) {
    const ConstTensorView view(reinterpret_cast<const std::byte*>(ids.data()), DType::kInt64,
                               ids.device(), shape, strides);
    lora_plan(stream().ctx(), plan_view(plan), LoraBatch::from_ids(view), 4, 2, 1);
  };
  make(wrong);
  const ScopedValidation on;
  make(fine);
  expect_invalid({"slot_ids[3] is 2, expected below num_slots = 2"}, [&] { make(wrong); });
}

TEST_F(LoraValidateCuda, WaitsForWhatTheStreamWritesBefore) {
  const DeviceBuffer<uint8_t> plan(lora_plan_bytes(4, 1));
  const DeviceBuffer<uint8_t> busy(size_t(small_or(1 << 16, 1 << 28)));
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>(4, 0));
  const ScopedValidation on;
  HEDDLE_CUDA_CHECK(cudaMemsetAsync(busy.data(), 0, busy.size(), stream().get()));
  HEDDLE_CUDA_CHECK(cudaMemsetAsync(ids.data() + 2, 1, sizeof(int32_t), stream().get()));
  expect_invalid({"slot_ids[2] is 16843009, expected below num_slots = 2"}, [&] {
    lora_plan(stream().ctx(), plan_view(plan), LoraBatch::from_ids(ids.view({4})), 4, 2, 1);
  });
}

TEST_F(LoraValidateCuda, IsLeftOutDuringACapture) {
  DeviceSite<half> site(3, 64, {32, 8}, 16, true);
  const LoraStream own(cuda_context().device, site.workspace_bytes(), true);
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>{0, 99, -1});
  const LoraBatch batch = LoraBatch::from_ids(ids.view({3}));
  site.apply(own.ctx(), batch);  // loads the kernels
  const ScopedValidation on;
  expect_invalid({"slot_ids[1] is 99, expected below num_slots = 6"},
                 [&] { site.apply(own.ctx(), batch); });
  own.wait();
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
    HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(own.get(), mode));
    EXPECT_NO_THROW(site.apply(own.ctx(), batch));
    cudaGraph_t graph = nullptr;
    HEDDLE_CUDA_CHECK(cudaStreamEndCapture(own.get(), &graph));
    size_t num_nodes = 0;
    HEDDLE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
    EXPECT_GE(num_nodes, 2u);  // the plan and the call
    HEDDLE_CUDA_CHECK(cudaGraphDestroy(graph));
  }
}

/// Calls with a plan that is not theirs follow nothing that it says: y is NaN, nothing else is
/// written, and the context reports it.
void expect_foreign_plans_are_refused(int64_t num_tokens, int64_t in, bool is_regular,
                                      bool with_exchange, int max_rank) {
  using W = bfloat16;
  DeviceSite<W> site(num_tokens, in, {64, 72}, max_rank, is_regular);
  DeviceStream stream;
  CudaContext context({DeviceType::kCuda, 0}, stream.get(), site.workspace_bytes(),
                      with_exchange ? CudaContext::kExchangeBytes : 0);
  const ExecContext& ctx = context.exec();
  const size_t bytes = lora_plan_bytes(num_tokens, max_rank);
  DeviceBuffer<uint8_t> memory(bytes);
  const TensorView plan = memory.view({static_cast<int64_t>(bytes)});
  LoraBatch batch = site.batch();
  const LoraBatch own = batch;
  DeviceBuffer<int32_t> ids{size_t(num_tokens)};
  ids.upload(std::vector<int32_t>(size_t(num_tokens), 1));
  constexpr int kSlots = DeviceSite<W>::kNumSlots;
  const std::vector<std::pair<const char*, std::function<void()>>> plans{
      {"never written", [&] {}},
      {"zeros", [&] { memory.upload(std::vector<uint8_t>(bytes)); }},
      {"any bytes",
       [&] {
         std::vector<uint8_t> values(bytes);
         for (uint8_t& value : values) value = static_cast<uint8_t>(random_int(0, 255));
         memory.upload(values);
       }},
      {"fewer rows",
       [&] {
         LoraBatch fewer = LoraBatch::from_ids(ids.view({num_tokens - 1}));
         lora_plan(ctx, plan, fewer, num_tokens - 1, kSlots, max_rank);
       }},
      {"more slots", [&] { lora_plan(ctx, plan, own, num_tokens, kSlots + 1, max_rank); }},
      {"another batch", [&] {
         const LoraBatch other = LoraBatch::from_ids(ids.view({num_tokens}));
         lora_plan(ctx, plan, other, num_tokens, kSlots, max_rank);
       }}};
  batch.plan = plan;
  const auto all_are_nan = [&] {
    return std::ranges::all_of(site.y(), [](const DeviceBuffer<W>& y) {
      return std::ranges::all_of(y.download(), [](W v) { return std::isnan(to_float(v)); });
    });
  };
  for (const auto& [what, make] : plans) {
    make();
    site.restart();
    site.apply(ctx, batch);
    stream.wait();
    EXPECT_TRUE(all_are_nan()) << what;
    EXPECT_TRUE(site.guards_intact()) << what;
    const std::optional<Fault> fault = context.poll();
    ASSERT_TRUE(fault.has_value()) << what;
    EXPECT_NE(fault->text().find("plan"), std::string::npos) << fault->text();
  }
  lora_plan(ctx, plan, own, num_tokens, kSlots, max_rank);
  site.restart();
  site.apply(ctx, batch);
  EXPECT_NO_THROW(context.check());
  EXPECT_EQ(site.bits(), site.expected_bits({DeviceType::kCuda, 0}));
}

TEST_F(LoraValidateCuda, ForeignPlansAreRefused) {
  for (const bool is_regular : {true, false}) {
    for (const bool with_exchange : {true, false}) {
      for (const int max_rank : {16, 64}) {
        for (const int64_t num_tokens : {3, 40, small_or(300, 700)}) {
          expect_foreign_plans_are_refused(num_tokens, is_regular ? 520 : 131, is_regular,
                                           with_exchange, max_rank);
          ASSERT_FALSE(HasFailure())
              << num_tokens << ' ' << is_regular << with_exchange << max_rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::testing
