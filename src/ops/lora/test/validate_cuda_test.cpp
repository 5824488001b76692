// HEDDLE_VALIDATE=1 on a GPU: the bodies of the CPU's tests, and when the arrays of the device are
// looked at.
#include <optional>
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

}  // namespace
}  // namespace heddle::testing
