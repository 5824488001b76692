#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"

#include "heddle/core/cuda_context.h"

#include "device_buffer.h"
#include "graph_timing_cuda.h"
#include "ops/lora/run/run_on_gpu.h"
#include "ops/lora/test/lora_cases.h"
#include "random.h"

namespace heddle::testing {

/// A context as for a chip of the compute capability in HEDDLE_TEST_CAPABILITY, where that is set:
/// so the kernels for older chips run on a newer one.
[[nodiscard]] inline ExecContext as_tested(ExecContext ctx) {
  static const char* const capability = std::getenv("HEDDLE_TEST_CAPABILITY");
  if (capability != nullptr) ctx.info.compute_capability = std::atoi(capability);
  return ctx;
}

/// A stream with all that calls on it need; without an exchange they take the form of two launches.
class LoraStream {
 public:
  LoraStream(Device device, size_t workspace_bytes, bool with_exchange)
      : context_(device, stream_.get(), workspace_bytes,
                 with_exchange ? CudaContext::kExchangeBytes : 0),
        ctx_(as_tested(context_.exec())) {}

  [[nodiscard]] const ExecContext& ctx() const { return ctx_; }
  /// As for a chip of num_sms, fewer than there are: then small calls are one launch, too, of 2 *
  /// num_sms blocks.
  [[nodiscard]] ExecContext ctx_of_chip(int num_sms) const {
    ExecContext result = ctx();
    result.info.num_sms = std::min(num_sms, result.info.num_sms);
    return result;
  }
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
  void wait() const { stream_.wait(); }

 private:
  DeviceStream stream_;
  CudaContext context_;
  ExecContext ctx_;
};

/// What `record` launches into a stream, to be replayed there.
class Graph {
 public:
  template <class Record>
  Graph(const LoraStream& stream, const Record& record)
      : stream_(stream.get()), graph_(stream_, record) {}
  void launch() const { graph_.launch(stream_); }

 private:
  cudaStream_t stream_;
  RecordedGraph graph_;
};

/// A site on the device whose ids, ranks, weights and scales can change in place. With is_regular
/// all is aligned for loads of vectors. Every array is an allocation of its own.
template <class W>
class DeviceSite {
 public:
  static constexpr int kNumSlots = 6;

  DeviceSite(int64_t num_tokens, int64_t in, std::vector<int64_t> outs, int max_rank,
             bool is_regular)
      : num_tokens_(num_tokens),
        in_(in),
        max_rank_(max_rank),
        is_regular_(is_regular),
        outs_(std::move(outs)),
        x_(random_normal<W>(size_t(num_tokens * in))),
        ids_(size_t(num_tokens)),
        slot_ranks_(kNumSlots),
        row_scale_(size_t(num_tokens)),
        a_entries_(kNumSlots * outs_.size()),
        b_entries_(kNumSlots * outs_.size()),
        plan_(lora_plan_bytes(num_tokens, max_rank)) {
    for (const int64_t out : outs_) {
      start_.push_back(random_normal<W>(size_t(num_tokens * out)));
      y_.emplace_back(start_.back());
      for (int slot = 0; slot < 2 * kNumSlots; ++slot) {  // more than are in use
        a_.emplace_back(random_weight(max_rank * in));
        b_.emplace_back(random_weight(max_rank * out));
      }
    }
    change();
  }

  /// New ids, ranks, weights, scales and factors of rows, in place; waits for the device.
  void change() {
    std::vector<int32_t> ids(static_cast<size_t>(num_tokens_)), ranks;
    for (int32_t& id : ids) id = static_cast<int32_t>(random_int(-1, kNumSlots));
    ids[0] = static_cast<int32_t>(random_int(0, kNumSlots - 1));  // one row at least has an adapter
    std::vector<LoraWeight> a, b;
    for (int slot = 0; slot < kNumSlots; ++slot) {
      const auto step = is_regular_ ? 8 : 1;
      ranks.push_back(static_cast<int32_t>(random_int(1, max_rank_ / step) * step));
      for (size_t s = 0; s < outs_.size(); ++s) {
        const auto index =
            s * 2 * kNumSlots + static_cast<size_t>(random_int(0, 2 * kNumSlots - 1));
        // The last slice has every adapter, so that the row above changes something.
        const bool is_there = s + 1 == outs_.size() || random_int(0, 4) > 0;
        // Without gaps, where its rows are vectors then, or with some.
        const int b_stride =
            ranks.back() % 8 == 0 && random_int(0, 1) == 0 ? ranks.back() : max_rank_;
        a.push_back({.data = is_there ? a_[index].data() : nullptr,
                     .rank = ranks.back(),
                     .row_stride = in_});
        b.push_back({.data = is_there ? b_[index].data() : nullptr,
                     .rank = ranks.back(),
                     .scale = static_cast<float>(random_int(1, 9)) * 0.25f,
                     .row_stride = b_stride});
      }
    }
    ids_.upload(ids);
    slot_ranks_.upload(ranks);
    a_entries_.upload(a);
    b_entries_.upload(b);
    row_scale_.upload(random_normal<float>(size_t(num_tokens_)));
  }
  void remove_all() { ids_.upload(std::vector<int32_t>(size_t(num_tokens_), kNoAdapter)); }
  void restart() {
    for (size_t s = 0; s < y_.size(); ++s) y_[s].upload(start_[s]);
  }

  [[nodiscard]] LoraTable a() const { return table(a_entries_, LoraLayout::kRankMajor); }
  [[nodiscard]] LoraTable b() const { return table(b_entries_, LoraLayout::kRankMinor); }
  [[nodiscard]] ConstTensorView x() const { return x_.view({num_tokens_, in_}); }
  [[nodiscard]] std::vector<LoraSlice> slices() const {
    std::vector<LoraSlice> result;
    for (size_t s = 0; s < y_.size(); ++s) result.push_back({y_[s].view({num_tokens_, outs_[s]})});
    return result;
  }
  [[nodiscard]] LoraBatch batch() const {
    LoraBatch result = LoraBatch::from_ids(ids_.view({num_tokens_}));
    result.row_scale = row_scale_.view({num_tokens_});
    return result;
  }
  [[nodiscard]] LoraBatch planned(const ExecContext& ctx) const {
    LoraBatch result = batch();
    const TensorView plan = plan_.view({int64_t(plan_.size())});
    lora_plan(ctx, plan, result, num_tokens_, kNumSlots, max_rank_, slot_ranks_.view({kNumSlots}));
    result.plan = plan;
    return result;
  }

  void apply(const ExecContext& ctx, bool with_plan = false) const {
    apply(ctx, with_plan ? planned(ctx) : batch());
  }
  void apply(const ExecContext& ctx, const LoraBatch& rows) const {
    lora_apply(ctx, slices(), x(), a(), b(), rows);
  }
  [[nodiscard]] size_t workspace_bytes() const {
    return lora_apply_workspace_bytes({DeviceType::kCuda, 0}, num_tokens_, in_,
                                      static_cast<int>(outs_.size()), max_rank_);
  }

  /// Workspace of a batch with pairs.
  [[nodiscard]] size_t pairs_workspace_bytes() const {
    return lora_pairs_workspace_bytes({DeviceType::kCuda, 0}, num_tokens_, in_,
                                      std::accumulate(outs_.begin(), outs_.end(), int64_t{0}),
                                      static_cast<int>(outs_.size()), max_rank_);
  }

  /// What the slices hold, one after the other; waits for the device.
  [[nodiscard]] std::vector<uint16_t> bits() const {
    std::vector<uint16_t> result;
    for (const auto& y : y_) append(result, y.download());
    return result;
  }
  [[nodiscard]] std::vector<uint16_t> start_bits() const {
    std::vector<uint16_t> result;
    for (const std::vector<W>& start : start_) append(result, start);
    return result;
  }
  /// What the call gives in two launches without a plan, on a stream of its own.
  [[nodiscard]] std::vector<uint16_t> expected_bits(Device device) {
    const LoraStream stream(device, workspace_bytes(), false);
    restart();
    apply(stream.ctx());
    return bits();
  }
  [[nodiscard]] bool guards_intact() const {
    for (const auto& y : y_) {
      if (!y.guards_intact()) return false;
    }
    return true;
  }
  [[nodiscard]] const std::vector<DeviceBuffer<W>>& y() const { return y_; }
  [[nodiscard]] const std::vector<std::vector<W>>& start() const { return start_; }

 private:
  static_assert(sizeof(W) == sizeof(uint16_t));

  /// Large ones repeat themselves after a prime number of values: drawing takes longer than what is
  /// tested.
  static std::vector<W> random_weight(int64_t n) {
    constexpr int64_t kPeriod = 30'011;
    std::vector<W> values = random_normal<W>(size_t(std::min(n, kPeriod)));
    for (auto i = static_cast<int64_t>(values.size()); i < n; ++i) {
      values.push_back(values[size_t(i - kPeriod)]);
    }
    return values;
  }
  static void append(std::vector<uint16_t>& to, const std::vector<W>& values) {
    const size_t before = to.size();
    to.resize(before + values.size());
    std::memcpy(to.data() + before, values.data(), values.size() * sizeof(W));
  }
  [[nodiscard]] LoraTable table(const DeviceBuffer<LoraWeight>& entries, LoraLayout layout) const {
    return {.entries = entries.data(),
            .num_slots = kNumSlots,
            .num_slices = static_cast<int32_t>(outs_.size()),
            .max_rank = max_rank_,
            .dtype = kDType<W>,
            .device = entries.device(),
            .layout = layout,
            .is_aligned = is_regular_};
  }

  int64_t num_tokens_, in_;
  int max_rank_;
  bool is_regular_;
  std::vector<int64_t> outs_;
  DeviceBuffer<W> x_;
  std::vector<DeviceBuffer<W>> a_, b_, y_;  // of each slice, weights of 2 * kNumSlots adapters
  std::vector<std::vector<W>> start_;       // of each slice, what y begins with
  DeviceBuffer<int32_t> ids_, slot_ranks_;
  DeviceBuffer<float> row_scale_;
  DeviceBuffer<LoraWeight> a_entries_, b_entries_;
  DeviceBuffer<uint8_t> plan_;
};

}  // namespace heddle::testing
