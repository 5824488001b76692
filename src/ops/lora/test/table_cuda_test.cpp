// Adapter tables on a GPU: what lies in their entries after each change, in the order of the
// stream. What calls make of them is tested with the calls.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "heddle/ops/lora_table.h"

#include "device_buffer.h"
#include "expect_error.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

constexpr int32_t kSlots = 5, kMaxRank = 32;
constexpr std::array<int64_t, 3> kFeatures{64, 8, 128};

/// Of an entry without a weight nothing else counts.
bool same(const LoraWeight& a, const LoraWeight& b) {
  if (a.data == nullptr && b.data == nullptr) return true;
  return a.data == b.data && a.rank == b.rank && a.scale == b.scale && a.row_stride == b.row_stride;
}

/// A table on the device, the weights for it, and what its entries must be.
class LoraTableCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    stream_.emplace();
    ctx_ = cuda_context(stream_->get());
    weights_ = std::make_unique<DeviceBuffer<half>>(size_t{1} << 16);
    table_ = make(kSlots, LoraAlignment::kNone);
    want_.assign(kSlots * kFeatures.size(), LoraWeight{});
  }
  void TearDown() override {
    table_.reset();
    weights_.reset();
    stream_.reset();
    CudaTest::TearDown();
  }

  [[nodiscard]] std::unique_ptr<AdapterTable> make(int32_t num_slots, LoraAlignment fit) const {
    return std::make_unique<AdapterTable>(ctx_, num_slots, kFeatures, kMaxRank, DType::kFloat16,
                                          LoraLayout::kRankMajor, fit);
  }
  /// [rank, kFeatures[slice]] from the element `first` of the weights on, with gaps between rows.
  [[nodiscard]] ConstTensorView weight(int64_t rank, int64_t slice, int64_t first,
                                       int64_t gap) const {
    const int64_t features = kFeatures[size_t(slice)];
    const std::array shape{rank, features}, strides{features + gap, int64_t{1}};
    return {reinterpret_cast<const std::byte*>(weights_->data() + first), DType::kFloat16,
            ctx_.device, shape, strides};
  }
  /// Sets a random slice of a random slot, or clears a slot.
  void change() {
    const auto slot = static_cast<int32_t>(random_int(0, kSlots - 1));
    if (random_int(0, 3) == 0) {
      table_->clear(ctx_, slot);
      std::fill_n(want_.begin() + slot * int64_t(kFeatures.size()), kFeatures.size(), LoraWeight{});
      return;
    }
    const auto slice = static_cast<int32_t>(random_int(0, kFeatures.size() - 1));
    const ConstTensorView w =
        weight(random_int(1, kMaxRank), slice, random_int(0, 999), random_int(0, 9));
    const auto scale = static_cast<float>(random_int(1, 99));
    table_->set(ctx_, slot, slice, w, scale);
    want_[size_t(slot) * kFeatures.size() + size_t(slice)] = {
        w.raw(), static_cast<int32_t>(w.size(0)), scale, w.stride(0)};
  }
  [[nodiscard]] size_t table_bytes() const { return want_.size() * sizeof(LoraWeight); }
  [[nodiscard]] std::vector<LoraWeight> entries() const {
    std::vector<LoraWeight> result(want_.size());
    stream_->wait();
    HEDDLE_CUDA_CHECK(
        cudaMemcpy(result.data(), table_->view().entries, table_bytes(), cudaMemcpyDeviceToHost));
    return result;
  }
  void expect_entries(const std::vector<LoraWeight>& got, const std::vector<LoraWeight>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], want[i])) << "entry " << i;
  }

  std::optional<DeviceStream> stream_;  // made where there is a device
  ExecContext ctx_;
  std::unique_ptr<DeviceBuffer<half>> weights_;
  std::unique_ptr<AdapterTable> table_;
  std::vector<LoraWeight> want_;
};

TEST_F(LoraTableCuda, BeginsWithoutAdaptersOnTheDevice) {
  const LoraTable view = table_->view();
  EXPECT_EQ(view.device, ctx_.device);
  EXPECT_EQ(view.num_slots, kSlots);
  for (const LoraWeight& entry : entries()) {
    EXPECT_EQ(entry.data, nullptr);
    EXPECT_EQ(entry.rank, 0);
  }
  EXPECT_EQ(make(0, LoraAlignment::kNone)->view().num_slots, 0);
}

TEST_F(LoraTableCuda, ChangesWriteTheirEntriesAndNoOther) {
  for (int round = 0; round < small_or(20, 200); ++round) {
    change();
    expect_entries(entries(), want_);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(LoraTableCuda, ChangesAreInTheOrderOfTheStream) {
  const int rounds = small_or(20, 200);
  DeviceBuffer<LoraWeight> log(size_t(rounds) * want_.size());
  const DeviceBuffer<uint8_t> busy(size_t(small_or(1 << 16, 1 << 28)));
  HEDDLE_CUDA_CHECK(cudaMemsetAsync(busy.data(), 0, busy.size(), stream_->get()));
  std::vector<std::vector<LoraWeight>> wants;
  for (int round = 0; round < rounds; ++round) {  // nothing waits for the device
    change();
    wants.push_back(want_);
    HEDDLE_CUDA_CHECK(cudaMemcpyAsync(log.data() + size_t(round) * want_.size(),
                                      table_->view().entries, table_bytes(),
                                      cudaMemcpyDeviceToDevice, stream_->get()));
  }
  for (int round = 0; round < rounds; ++round) {
    expect_entries(log.download(size_t(round) * want_.size(), want_.size()), wants[size_t(round)]);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(LoraTableCuda, ACaptureRecordsAChangeWithItsEntry) {
  change();
  const std::vector<LoraWeight> before = want_;
  HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream_->get(), cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 4; ++i) change();
  for (int32_t slot = 1; slot < kSlots; ++slot) {  // so that the graph fixes every entry
    table_->clear(ctx_, slot);
    std::fill_n(want_.begin() + slot * int64_t(kFeatures.size()), kFeatures.size(), LoraWeight{});
  }
  for (int32_t slice = 0; slice < int32_t(kFeatures.size()); ++slice) {
    const ConstTensorView w = weight(7, slice, 3, 1);
    table_->set(ctx_, 0, slice, w, 2.5f);
    want_[size_t(slice)] = {w.raw(), 7, 2.5f, w.stride(0)};
  }
  cudaGraph_t graph = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamEndCapture(stream_->get(), &graph));
  const std::vector<LoraWeight> of_graph = want_;
  expect_entries(entries(), before);

  cudaGraphExec_t exec = nullptr;
  HEDDLE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int replay = 0; replay < 3; ++replay) {
    HEDDLE_CUDA_CHECK(cudaGraphLaunch(exec, stream_->get()));
    expect_entries(entries(), of_graph);
    for (int i = 0; i < 3; ++i) change();
  }
  HEDDLE_CUDA_CHECK(cudaGraphExecDestroy(exec));
  HEDDLE_CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_F(LoraTableCuda, TheLastSlotOfALargeTable) {
  const int32_t slots = small_or(1000, 1'000'000);
  const auto large = make(slots, LoraAlignment::kNone);
  const ConstTensorView w = weight(4, 2, 0, 0);
  large->set(ctx_, slots - 1, 2, w);
  const auto last = [&] {
    LoraWeight entry;
    stream_->wait();
    HEDDLE_CUDA_CHECK(cudaMemcpy(&entry, large->view().entries + int64_t{slots} * 3 - 1,
                                 sizeof(entry), cudaMemcpyDeviceToHost));
    return entry;
  };
  EXPECT_TRUE(same(last(), {w.raw(), 4, 1.0f, w.stride(0)}));
  large->clear(ctx_, slots - 1);
  EXPECT_TRUE(same(last(), LoraWeight{}));
}

TEST_F(LoraTableCuda, APromiseIsCheckedByAddressRowsAndRank) {
  const auto aligned = make(1, LoraAlignment::k16Bytes);
  EXPECT_TRUE(aligned->view().is_aligned);
  const auto set = [&](int64_t rank, int64_t first, int64_t gap) {
    aligned->set(ctx_, 0, 1, weight(rank, 1, first, gap));
  };
  set(8, 0, 0);
  set(12, 8, 8);
  expect_invalid({"weight begins 6 bytes past a multiple of 16"}, [&] { set(8, 3, 0); });
  expect_invalid({"weight.stride(0) is 9 elements, 18 bytes"}, [&] { set(8, 0, 1); });
  expect_invalid({"the rank of weight is 20, expected a multiple of 8"}, [&] { set(20, 0, 0); });
}

TEST_F(LoraTableCuda, OtherDevicesAreNamed) {
  const std::vector<half> host(64);
  expect_invalid({"weight is on cpu, the context runs on cuda:"}, [&] {
    table_->set(ctx_, 0, 0, host_view(host.data(), {1, 64}));
  });
  expect_invalid({"the table is on cuda:", "the context runs on cpu"},
                 [&] { table_->clear({}, 0); });
  expect_entries(entries(), want_);
}

}  // namespace
}  // namespace heddle::testing
