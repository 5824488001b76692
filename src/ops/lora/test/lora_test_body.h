#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "heddle/ops/lora.h"

#include "mirror.h"
#include "random.h"

namespace heddle::testing {

/// How the sums of a call may differ from the reference.
enum class LoraSums {
  kInOrder,  // CPU with fused multiply-add: bit for bit in the promised order
  kClose,    // CPU without: each product is rounded
  kSplit,    // CUDA: another order, and h enters the product with B as two values of its dtype
};

/// Where the calls of a test run.
struct LoraRun {
  ExecContext ctx;
  Mirror& mirror;
  LoraSums sums = LoraSums::kInOrder;
  bool with_plan = false;  // CUDA: lora_plan before each call

  /// The context with all the workspace that a call needs, until mirror.back(). `workspace` is the
  /// caller's.
  [[nodiscard]] Workspace workspace(int64_t num_tokens, int64_t in_features, int num_slices,
                                    int max_rank) const {
    return Workspace(mirror.scratch(
        lora_apply_workspace_bytes(ctx.device, num_tokens, in_features, num_slices, max_rank)));
  }
  /// Workspace of a batch with pairs; out_features: of the slices whose y is not f32.
  [[nodiscard]] Workspace pairs_workspace(int64_t num_tokens, int64_t in_features,
                                          int64_t out_features, int num_slices,
                                          int max_rank) const {
    return Workspace(mirror.scratch(lora_pairs_workspace_bytes(
        ctx.device, num_tokens, in_features, out_features, num_slices, max_rank)));
  }
  [[nodiscard]] ExecContext with(Workspace& workspace) const {
    ExecContext result = ctx;
    result.workspace = &workspace;
    return result;
  }

  /// A batch and its plan, if the run has one, where calls read them.
  [[nodiscard]] LoraBatch batch(LoraBatch b, int64_t num_tokens, int num_slots, int max_rank,
                                const std::vector<int>& slot_ranks = {}) const {
    for (ConstTensorView* t : {&b.slot_ids, &b.seg_starts, &b.seg_ends, &b.seg_slots, &b.row_scale,
                               &b.pair_starts, &b.pair_slots, &b.pair_scales}) {
      *t = mirror(*t);
    }
    if (!with_plan || num_tokens == 0 || b.pair_starts) return b;
    const auto plan = mirror.scratch(lora_plan_bytes(num_tokens, max_rank));
    const TensorView view(plan.data(), DType::kUInt8, ctx.device, {int64_t(plan.size())});
    ConstTensorView ranks;
    if (!slot_ranks.empty()) {
      const auto* data = mirror(std::vector<int32_t>(slot_ranks.begin(), slot_ranks.end()));
      ranks = ConstTensorView(reinterpret_cast<const std::byte*>(data), DType::kInt32, ctx.device,
                              {int64_t(slot_ranks.size())});
    }
    lora_plan(ctx, view, b, num_tokens, num_slots, max_rank, ranks);
    b.plan = view;
    return b;
  }

  /// A table of host memory where calls read it; features [num_slices]: in_features or
  /// out_features.
  [[nodiscard]] LoraTable table(const LoraTable& host, std::span<const int64_t> features) const {
    LoraTable result = host;
    result.device = ctx.device;
    if (host.entries != nullptr) {
      result.is_aligned = random_int(0, 1) == 0 && is_aligned(host);
      result.entries = mirror(entries(host, features));
    } else if (host.pointers != nullptr) {
      result.pointers = mirror(pointers(host, features[0]));
    } else if (host.stack != nullptr) {
      const int64_t elements = (host.num_slots - 1) * host.slot_stride + host.element_offset +
                               extent(host, host.max_rank, host.row_stride, features[0]);
      result.stack = weight(host.stack, host.dtype, elements);
    }
    return result;
  }

  /// Whether every weight can be loaded 16 bytes at a time.
  [[nodiscard]] static bool is_aligned(const LoraTable& t) {
    for (const LoraWeight& w : std::span(t.entries, size_t(t.num_slots * t.num_slices))) {
      const auto bytes =
          reinterpret_cast<uintptr_t>(w.data) | size_t(w.row_stride) * size_of(t.dtype);
      const bool fits = bytes % 16 == 0 && w.rank % (w.rank <= 16 ? 4 : 8) == 0;
      if (w.data != nullptr && !fits) return false;
    }
    return true;
  }

 private:
  /// Elements from the first of a weight to its last.
  static int64_t extent(const LoraTable& t, int64_t rank, int64_t row_stride, int64_t features) {
    const bool rank_major = t.layout == LoraLayout::kRankMajor;
    const int64_t outer = rank_major ? rank : features, inner = rank_major ? features : rank;
    return outer == 0 || inner == 0 ? 0 : (outer - 1) * row_stride + inner;
  }
  [[nodiscard]] const std::byte* weight(const void* data, DType dtype, int64_t elements) const {
    return mirror(
        std::span(static_cast<const std::byte*>(data), size_t(elements) * size_of(dtype)));
  }
  [[nodiscard]] std::vector<LoraWeight> entries(const LoraTable& host,
                                                std::span<const int64_t> features) const {
    std::vector<LoraWeight> result(host.entries,
                                   host.entries + int64_t{host.num_slots} * host.num_slices);
    for (size_t i = 0; i < result.size(); ++i) {
      LoraWeight& w = result[i];
      if (w.data == nullptr) continue;
      w.data = weight(w.data, host.dtype,
                      extent(host, w.rank, w.row_stride, features[i % size_t(host.num_slices)]));
    }
    return result;
  }
  [[nodiscard]] std::vector<int64_t> pointers(const LoraTable& host, int64_t features) const {
    if (host.num_slots == 0) return {};
    std::vector<int64_t> result(host.pointers,
                                host.pointers + (host.num_slots - 1) * host.pointer_stride + 1);
    for (int32_t s = 0; s < host.num_slots; ++s) {
      int64_t& address = result[size_t(s * host.pointer_stride)];
      if (address == 0) continue;
      const int64_t elements =
          host.element_offset + extent(host, host.max_rank, host.row_stride, features);
      address = reinterpret_cast<int64_t>(
          weight(reinterpret_cast<const void*>(address), host.dtype, elements));
    }
    return result;
  }
};

}  // namespace heddle::testing
