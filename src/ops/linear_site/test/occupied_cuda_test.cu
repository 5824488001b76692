// Sites with adapters, whose launches begin early, while another kernel holds most of the chip.
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/test/occupier_cuda.h"

#include "heddle/ops/linear_site.h"

#include "ops/linear/format/packed_layout.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear_site/call/site_kernels.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

struct OccupiedShape {
  int64_t rows, in;
  std::vector<int64_t> outs;
  int max_rank;
  bool is_packed = false;  // Q4_0; then outs are whole groups
  LinearPath path = LinearPath::kDecode;
};

// Blocks of a launch, at most, where they are no clusters: few, so that ten thousand rounds take
// seconds, and some with several tiles.
constexpr int kSms = 40;
constexpr int kFreeSms = 32;  // that the occupier leaves

/// A site on a stream of its own, and a graph of calls of it, each with a y of its own.
class OccupiedSite {
 public:
  OccupiedSite(Device device, int num_calls, OccupiedShape s)
      : shape_(std::move(s)),
        num_calls_(num_calls),
        width_(std::accumulate(shape_.outs.begin(), shape_.outs.end(), int64_t{0})),
        stream_(device, workspace_bytes(device), true),
        adapters_(shape_.rows, shape_.in, shape_.outs, shape_.max_rank, true),
        weights_(random_normal<bfloat16>(size_t(shape_.is_packed ? 0 : width_ * shape_.in))),
        packed_(packed_weights()),
        y_(size_t((num_calls + 1) * shape_.rows * width_)),
        batch_(adapters_.planned(stream_.ctx())) {
    const int alone = num_calls_;  // after the graph's calls
    call(alone);
    want_ = y_.download(y_of(alone), y_size());
    graph_.emplace(stream_, [&] {
      for (int i = 0; i < num_calls_; ++i) call(i);
    });
  }

  void clear() { y_.poison(); }
  void replay() const { graph_->launch(); }
  /// One call, in the place of the graph's first one.
  void call_once() const { call(0); }
  void wait_or_end(int round) const { testing::wait_or_end(stream_.get(), "linear_site", round); }
  /// Which of the first calls of the graph have other bits than the one that ran alone.
  [[nodiscard]] std::vector<int> wrong_calls(int num) const {
    const auto got = y_.download(0, y_of(num));  // one copy, not one a call
    std::vector<int> wrong;
    for (int i = 0; i < num; ++i) {
      if (std::memcmp(got.data() + y_of(i), want_.data(), y_size() * sizeof(bfloat16)) != 0) {
        wrong.push_back(i);
      }
    }
    return wrong;
  }
  [[nodiscard]] bool is_finite() const {
    for (const bfloat16 v : want_) {
      if (!std::isfinite(to_float(v))) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] size_t workspace_bytes(Device device) const {
    return linear_site_workspace_bytes(device, shape_.rows, shape_.in, width_,
                                       static_cast<int>(shape_.outs.size()), shape_.max_rank);
  }
  [[nodiscard]] std::vector<std::byte> packed_weights() const {
    if (!shape_.is_packed) return {};
    const auto stored = random_stored(kType, width_ * shape_.in, rng(), 1e-2f);
    const OwnedWeight weight(ExecContext{}, kType, width_, shape_.in, stored);
    return {weight.bytes().begin(), weight.bytes().end()};
  }
  [[nodiscard]] size_t y_size() const { return size_t(shape_.rows * width_); }
  [[nodiscard]] size_t y_of(int call) const { return size_t(call) * y_size(); }
  void call(int index) const {
    const TensorView y = y_.view({(num_calls_ + 1) * shape_.rows, width_})
                             .narrow(0, index * shape_.rows, shape_.rows);
    std::vector<LinearSlice> slices;
    int64_t column = 0;
    for (const int64_t out : shape_.outs) {
      LinearSlice& slice = slices.emplace_back(LinearSlice{.y = y.narrow(1, column, out)});
      if (shape_.is_packed) {
        const int64_t first = column / PackedLayout::kGroup * group_bytes(kType, shape_.in);
        slice.packed = {kType, out, shape_.in, packed_.data() + first};
      } else {
        slice.weight = weights_.view({width_, shape_.in}).narrow(0, column, out);
      }
      column += out;
    }
    const LinearAdapters adapters{adapters_.a(), adapters_.b(), batch_};
    cuda::linear_site::run(stream_.ctx_of_chip(kSms), slices, adapters_.x(), shape_.path,
                           &adapters);
  }

  static constexpr WeightType kType = WeightType::kQ4_0;

  OccupiedShape shape_;
  int num_calls_;
  int64_t width_;
  LoraStream stream_;
  DeviceSite<bfloat16> adapters_;
  DeviceBuffer<bfloat16> weights_;
  DeviceBuffer<std::byte> packed_;
  DeviceBuffer<bfloat16> y_;
  LoraBatch batch_;
  std::vector<bfloat16> want_;
  std::optional<Graph> graph_;
};

class LinearSiteOccupied : public CudaTest {};

TEST_F(LinearSiteOccupied, StreamsFinishBesideAKernelThatHoldsMostOfTheChip) {
  const Device device = cuda_context().device;
  // More blocks than fit next to the occupier: clusters of four, single ones, and clusters of two;
  // and the launches of a prompt.
  const int num_calls = small_or(3, 50);
  OccupiedSite clusters(device, num_calls, {6, 520, {256, 128}, 16});
  OccupiedSite blocks(device, num_calls, {5, 520, {8192, 4208}, 16});
  OccupiedSite packed(device, num_calls, {6, 512, {4096, 2064}, 16, true});
  OccupiedSite prompt(
      device, num_calls,
      {.rows = 300, .in = 520, .outs = {256, 128}, .max_rank = 16, .path = LinearPath::kPrompt});
  OccupiedSite* const sites[] = {&clusters, &blocks, &packed, &prompt};
  for (const OccupiedSite* site : sites) ASSERT_TRUE(site->is_finite());
  // compute-sanitizer runs one kernel at a time.
  std::optional<Occupier> occupier;
  if (!small_sizes()) occupier.emplace(device.index);
  const auto run = [&](int round, int num, const auto& call) {
    for (OccupiedSite* site : sites) site->clear();
    if (occupier) occupier->hold(kFreeSms);
    for (const OccupiedSite* site : sites) call(*site);
    for (const OccupiedSite* site : sites) site->wait_or_end(round);
    if (occupier) {
      ASSERT_TRUE(occupier->release()) << "a site waited for the chip, round " << round;
    }
    for (const OccupiedSite* site : sites) {
      ASSERT_EQ(site->wrong_calls(num), std::vector<int>{}) << "round " << round;
    }
  };
  run(-1, 1, [](const OccupiedSite& site) { site.call_once(); });
  const int rounds = num_rounds(small_or(6, 10'000));
  for (int round = 0; round < rounds && !HasFatalFailure(); round += num_calls) {
    run(round, num_calls, [](const OccupiedSite& site) { site.replay(); });
  }
}

}  // namespace
}  // namespace heddle::testing
