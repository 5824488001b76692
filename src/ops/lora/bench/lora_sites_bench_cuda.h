#pragma once

// The linear sites of an 8B Llama, adapters for them, and the timing of lora_apply at one of them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "ops/lora/bench/lora_bench_cuda.h"

namespace heddle::lora_bench {

inline constexpr int64_t kColdBytes =
    int64_t{400} << 20;  // of different weights in a graph; the L2 cache of an H200 has 60 MB
inline constexpr int kMaxSites = 256, kFewestSites = 24, kQuickSites = 32;

struct Site {
  const char* name;
  int64_t in_features;
  std::vector<int64_t> out_features;  // of each slice

  [[nodiscard]] int num_slices() const { return static_cast<int>(out_features.size()); }
  [[nodiscard]] int64_t sum_out_features() const {
    return std::accumulate(out_features.begin(), out_features.end(), int64_t{0});
  }
};

inline const Site kQkv{"qkv", 4096, {4096, 1024, 1024}};
inline const Site kO{"o", 4096, {4096}};
inline const Site kGateUp{"gate_up", 4096, {14336, 14336}};
inline const Site kDown{"down", 14336, {4096}};

/// One row of a table: `adapters` adapters, all of them in use; 0: some are loaded, but no row has
/// one.
struct Cell {
  const Site* site;
  int rank;  // of all adapters, or their mean where `ranks` says that of each
  int64_t tokens;
  int adapters;
  bool is_prefill = false;  // equal segments of rows with one adapter, not an id for each row
  int loaded = 0;           // adapters in the table; 0: those in use
  std::vector<int> ranks = {};
  bool is_scattered = false;  // each A and B somewhere in four times the memory

  [[nodiscard]] int num_slots() const { return loaded > 0 ? loaded : adapters > 0 ? adapters : 8; }
  /// Slots with weights of their own. Those of adapters that no row uses are never read, so they
  /// repeat the others'.
  [[nodiscard]] int num_own_weights() const { return adapters > 0 ? adapters : num_slots(); }
  /// The slot of the adapter in use with this index: they are spread over the table.
  [[nodiscard]] int slot_in_use(int64_t adapter) const {
    return static_cast<int>(adapter) * (num_slots() / num_own_weights());
  }
  /// Whose weights a slot has; that of slot_in_use(i) is i.
  [[nodiscard]] int adapter_in(int slot) const {
    return std::min(slot / (num_slots() / num_own_weights()), num_own_weights() - 1);
  }
  [[nodiscard]] int rank_of(int adapter) const {
    return ranks.empty() ? rank : ranks[size_t(adapter) % ranks.size()];
  }
  [[nodiscard]] int max_rank() const {
    return ranks.empty() ? rank : *std::max_element(ranks.begin(), ranks.end());
  }
  /// Of all adapters with weights of their own: A and B of every slice.
  [[nodiscard]] int64_t weight_bytes() const {
    int64_t bytes = 0;
    for (int i = 0; i < num_own_weights(); ++i) bytes += bytes_of(i);
    return bytes;
  }
  [[nodiscard]] int64_t bytes_of(int adapter) const {
    return kElement * rank_of(adapter) *
           (site->num_slices() * site->in_features + site->sum_out_features());
  }
};

/// What the memory alone would take: all weights in use and x read, y read and written, each once.
inline double floor_us(const Cell& cell) {
  if (cell.adapters == 0) return 0;
  const int64_t of_row = kElement * (cell.site->in_features + 2 * cell.site->sum_out_features());
  return double(cell.weight_bytes() + cell.tokens * of_row) / kReadBytesPerUs;
}

/// All adapters of one site: A [rank, in_features] and B [out_features, rank] of each slice, one
/// after the other, or with is_scattered in another order with gaps between.
class SiteWeights {
 public:
  SiteWeights(const ExecContext& ctx, const Cell& cell)
      : bytes_(cell.weight_bytes()),
        values_(bytes_ / kElement * (cell.is_scattered ? kSpread : 1),
                1 / std::sqrt(double(cell.site->in_features))),
        a_(ctx, cell.num_slots(),
           std::vector<int64_t>(cell.site->out_features.size(), cell.site->in_features),
           cell.max_rank(), kDtype, LoraLayout::kRankMajor, LoraAlignment::k16Bytes),
        b_(ctx, cell.num_slots(), cell.site->out_features, cell.max_rank(), kDtype,
           LoraLayout::kRankMinor, LoraAlignment::k16Bytes) {
    const int num_slices = cell.site->num_slices();
    const std::vector<int64_t> first = first_values(cell);
    for (int slot = 0; slot < cell.num_slots(); ++slot) {
      const int adapter = cell.adapter_in(slot), rank = cell.rank_of(adapter);
      for (int slice = 0; slice < num_slices; ++slice) {
        const int64_t in = cell.site->in_features, out = cell.site->out_features[size_t(slice)];
        const int64_t* const of = &first[size_t(adapter * num_slices + slice) * 2];
        a_.set(ctx, slot, slice, values_.view(rank, in, of[0]));
        b_.set(ctx, slot, slice, values_.view(out, rank, of[1]));
      }
    }
  }
  [[nodiscard]] LoraTable a() const { return a_.view(); }
  [[nodiscard]] LoraTable b() const { return b_.view(); }
  [[nodiscard]] int64_t num_bytes() const { return bytes_; }
  [[nodiscard]] const std::byte* data() const { return values_.view(1, 1).raw(); }

 private:
  static constexpr int kSpread = 4;

  /// Where A and B of each adapter and slice begin: [adapter][slice][A, B].
  [[nodiscard]] static std::vector<int64_t> first_values(const Cell& cell) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < cell.num_own_weights(); ++i) {
      for (const int64_t out : cell.site->out_features) {
        sizes.push_back(cell.rank_of(i) * cell.site->in_features);
        sizes.push_back(cell.rank_of(i) * out);
      }
    }
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (cell.is_scattered) std::shuffle(order.begin(), order.end(), std::minstd_rand());
    std::vector<int64_t> first(sizes.size());
    int64_t next = 0;
    for (const size_t i : order) {
      first[i] = next;
      next += sizes[i] * (cell.is_scattered ? kSpread : 1);
    }
    return first;
  }

  int64_t bytes_;
  RandomValues values_;
  AdapterTable a_, b_;
};

/// Which adapter each row has, and the plan of it.
class Batch {
 public:
  Batch(const ExecContext& ctx, const Cell& cell)
      : tokens_(cell.tokens),
        num_slots_(cell.num_slots()),
        max_rank_(cell.max_rank()),
        plan_(allocate_zeroed(kGpu, lora_plan_bytes(tokens_, max_rank_))) {
    if (cell.is_prefill) {
      std::vector<int32_t> starts, ends;
      for (int64_t s = 0; s < cell.adapters; ++s) {
        starts.push_back(static_cast<int32_t>(tokens_ * s / cell.adapters));
        ends.push_back(static_cast<int32_t>(tokens_ * (s + 1) / cell.adapters));
      }
      batch_ = LoraBatch::from_segments(arrays_.emplace_back(starts).view(),
                                        arrays_.emplace_back(ends).view());
    } else {
      std::vector<int32_t> ids(size_t(tokens_), kNoAdapter);
      for (size_t t = 0; t < ids.size() && cell.adapters > 0; ++t) {
        ids[t] = cell.slot_in_use(static_cast<int64_t>(t) % cell.adapters);
      }
      batch_ = LoraBatch::from_ids(arrays_.emplace_back(ids).view());
    }
    if (!cell.ranks.empty()) {
      std::vector<int32_t> ranks;
      for (int slot = 0; slot < num_slots_; ++slot)
        ranks.push_back(cell.rank_of(cell.adapter_in(slot)));
      slot_ranks_ = arrays_.emplace_back(ranks).view();
    }
    plan(ctx);
  }
  void plan(const ExecContext& ctx) const {
    lora_plan(ctx, plan_view(), batch_, tokens_, num_slots_, max_rank_, slot_ranks_);
  }
  [[nodiscard]] LoraBatch planned() const {
    LoraBatch batch = batch_;
    batch.plan = plan_view();
    return batch;
  }

 private:
  [[nodiscard]] TensorView plan_view() const {
    return {plan_.get(),
            DType::kUInt8,
            kGpu,
            {static_cast<int64_t>(lora_plan_bytes(tokens_, max_rank_))}};
  }
  int64_t tokens_;
  int num_slots_, max_rank_;
  DeviceBytes plan_;
  std::deque<Indices> arrays_;
  LoraBatch batch_;
  ConstTensorView slot_ranks_;
};

/// One cell's calls: sites whose weights differ and come from memory, with the same x and y for
/// all.
class SiteCalls {
 public:
  SiteCalls(Bench& bench, const Cell& cell)
      : cell_(cell),
        x_(cell.tokens * cell.site->in_features, 1),
        batch_(bench.context().exec(), cell) {
    const ExecContext& ctx = bench.context().exec();
    bench.context().reserve_workspace(lora_apply_workspace_bytes(
        kGpu, cell.tokens, cell.site->in_features, cell.site->num_slices(), cell.max_rank()));
    const int64_t cold = (kColdBytes - 1) / cell.weight_bytes() + 1;
    const auto num_weights =
        std::clamp<int64_t>(cold, 2, bench.is_quick() ? kQuickSites : kMaxSites);
    num_sites_ = static_cast<int>(std::max<int64_t>(num_weights, kFewestSites));
    for (int64_t i = 0; i < num_weights; ++i) weights_.emplace_back(ctx, cell);
    for (const int64_t out : cell.site->out_features) {
      slices_.push_back({y_.emplace_back(cell.tokens * out, 1).view(cell.tokens, out)});
    }
  }
  [[nodiscard]] Record time(Bench& bench, const ExecContext& ctx, const char* form) const {
    const TensorView x = x_.view(cell_.tokens, cell_.site->in_features);
    auto samples = testing::time_in_graph(bench.stream(), num_sites_, [&](int i) {
      const SiteWeights& site = weights_[size_t(i) % weights_.size()];
      lora_apply(ctx, slices_, x, site.a(), site.b(), batch_.planned());
    });
    return {.op = "lora_apply",
            .site = cell_.site->name,
            .rank = cell_.rank,
            .tokens = cell_.tokens,
            .adapters = cell_.adapters,
            .form = form,
            .num_calls = num_sites_,
            .floor_us = floor_us(cell_),
            .samples = std::move(samples)};
  }

 private:
  Cell cell_;
  RandomValues x_;
  Batch batch_;
  int num_sites_ = 0;
  std::deque<SiteWeights> weights_;
  std::deque<RandomValues> y_;
  std::vector<LoraSlice> slices_;
};

}  // namespace heddle::lora_bench
