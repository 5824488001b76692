#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "ops/sampling/sample/device_cluster_cuda.h"
#include "ops/sampling/sample/row_sampler_cuda.h"

namespace heddle::cuda::sampling {

/// A Cluster (row_search_cuda.h) of one thread of the CPU, which takes the steps of all threads in
/// turn. What the kernels do apart from their communication is tested by it without a GPU.
class HostCluster {
 public:
  HostCluster(std::span<const float> row, const RowLayout& layout, int leader)
      : row_(row), layout_(layout), leader_(leader), blocks_(layout.num_blocks) {
    std::memset(static_cast<void*>(blocks_.data()), 0xFF, blocks_.size() * sizeof(BlockState));
    for (BlockState& block : blocks_) block.list_sizes[leader] = 0;
  }

  [[nodiscard]] int num_blocks() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] bool is_leader() const { return true; }
  [[nodiscard]] int leader_rank() const { return leader_; }
  [[nodiscard]] BlockState& leader() const { return of(leader_); }
  [[nodiscard]] BlockState& of(int rank) const { return blocks_[static_cast<size_t>(rank)]; }
  [[nodiscard]] float logit(uint32_t id) const { return row_[id]; }
  void end_row() const {}
  void meet() const {}

  template <class F>
  void each(const F& f) const {
    for (int rank = 0; rank < num_blocks(); ++rank) {
      for (int thread = 0; thread < kRowThreads; ++thread) f(of(rank), rank, thread);
    }
  }
  template <class F>
  void each_in_block(const F& f) const {
    each(f);
  }
  template <class F>
  void run(const F& f) const {
    each(f);
  }
  template <class F>
  void leader_each(const F& f) const {
    for (int thread = 0; thread < kRowThreads; ++thread) f(leader(), thread);
  }
  template <class F>
  void tokens(int rank, int thread, const F& f) const {
    fours(
        rank, thread, [](const float4&) { return true; }, f);
  }
  template <class F, class G>
  void fours(int rank, int thread, const F& f, const G& look_at) const {
    for (uint32_t part = 0; part < layout_.num_parts(); ++part) {
      part_fours(rank, thread, part, f, look_at, false);
    }
  }
  template <class F, class G>
  void part_fours(int rank, int thread, uint32_t part, const F& f, const G& look_at, bool) const {
    for (uint32_t c = 0; c < layout_.chunks_of_part(part); ++c) {
      const uint32_t chunk = (part << layout_.part_bits) + c;
      const uint32_t id = layout_.first_id(uint32_t(rank), uint32_t(thread), chunk);
      if (!f(four_at(id))) continue;
      for (uint32_t i = id; i < id + 4; ++i) look_at(at(i), i);
    }
  }
  template <bool kIsLast, class F>
  void stream(int rank, int thread, const F& f) const {
    for (uint32_t chunk = 0; chunk < layout_.num_chunks; ++chunk) {
      const uint32_t id = layout_.first_id(uint32_t(rank), uint32_t(thread), chunk);
      f(four_at(id), id);
    }
  }
  template <class F>
  void lead(int leader, const F& f) const {
    for (int rank = 0; rank < num_blocks(); ++rank) {
      for (int warp = 0; warp < kRowWarps; ++warp) {
        uint64_t best = 0;
        for (int lane = 0; lane < 32; ++lane) {
          best = std::max(best, f(rank, warp * 32 + lane).value);
        }
        of(leader).segment_units[rank * kRowWarps + warp] = best;
      }
    }
  }
  template <class F>
  void lead_groups(int leader, const F& f) const {
    lead(leader, f);
    largest_of_groups([&](int rank, int thread) { return f(rank, thread).logit(); });
  }
  [[nodiscard]] LeadingToken leading() const {
    const uint64_t* const all = leader().segment_units;
    return LeadingToken(*std::max_element(all, all + num_blocks() * kRowWarps));
  }
  [[nodiscard]] float bound_of(const RowBounds& bounds, int) const { return bounds.bound; }
  [[nodiscard]] float largest_in_row(int rank, int thread) const {
    float most = -heddle::sampling::kInfinity;
    stream<false>(rank, thread,
                  [&](const float4& four, uint32_t) { most = std::fmax(most, largest_of(four)); });
    return most;
  }
  template <class G>
  void fours_from(int rank, int thread, float least, const G& look_at) const {
    fours(
        rank, thread, [&](const float4& four) { return largest_of(four) >= least; }, look_at);
  }
  template <class F>
  void largest_of_groups(const F& f) const {
    const int width = kRowThreads / kGroups * num_blocks(), of_block = kRowThreads / width;
    for (int group = 0; group < kGroups; ++group) {
      float most = -heddle::sampling::kInfinity;
      for (int i = 0; i < width; ++i) {
        most = std::fmax(most, f(group / of_block, group % of_block * width + i));
      }
      leader().group_maxima[0][group] = most;
    }
  }
  [[nodiscard]] RowBounds bounds() const {
    RowBounds all{-heddle::sampling::kInfinity, heddle::sampling::kInfinity};
    for (int lane = 0; lane < 32; ++lane) {
      float its[kGroupsPerLane];
      for (int i = 0; i < kGroupsPerLane; ++i) its[i] = leader().group_maxima[0][lane + i * 32];
      std::sort(its, its + kGroupsPerLane);
      all = {std::max(all.largest, its[kGroupsPerLane - 1]),
             std::min(all.bound, its[kGroupsPerLane - 2])};
    }
    return all;
  }
  template <class F>
  void sum_segments(int leader, const F& f) const {
    for (uint32_t i = 0; i < layout_.num_segments(); ++i) {
      of(leader).segment_units[i] = sum_of_segment(i, f);
    }
  }
  template <class F>
  void sum_warps(int leader, const F& f) const {
    std::fill_n(of(leader).one_units, num_blocks() * kRowWarps, uint64_t{0});
    for (uint32_t i = 0; i < layout_.num_segments(); ++i) {
      of(leader).one_units[i % kRowWarps] += sum_of_segment(i, f);
    }
  }
  [[nodiscard]] uint64_t total(bool of_one) const {
    const uint64_t* const all = of_one ? leader().one_units : leader().segment_units;
    const auto n = of_one ? size_t(num_blocks() * kRowWarps) : layout_.num_segments();
    return std::accumulate(all, all + n, uint64_t{0});
  }
  static uint32_t add(uint32_t& to, uint32_t n) {
    to += n;
    return to - n;
  }
  static void lower(uint32_t& least, uint32_t id) { least = std::min(least, id); }
  void sort(int n) const { std::sort(leader().list, leader().list + n); }
  template <class F, class G>
  void pairs(int n, const F& f, const G& g) const {
    std::vector<uint64_t> sums(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) sums[static_cast<size_t>(i)] += f(i, j);
    }
    for (int i = 0; i < n; ++i) g(leader(), i, sums[static_cast<size_t>(i)]);
  }
  template <class F>
  void scan(int n, const F& f, uint64_t* units, uint64_t* counts) const {
    std::vector<Mass> all;
    for (int i = 0; i < n; ++i) all.push_back(f(i));
    Mass sum{};
    for (int i = 0; i < n; ++i) {
      sum.units += all[static_cast<size_t>(i)].units;
      sum.count += all[static_cast<size_t>(i)].count;
      units[i] = sum.units;
      if (counts != nullptr) counts[i] = sum.count;
    }
  }
  template <class F>
  void row_part(int thread, bool all, const F& f) const {
    for (uint32_t i = uint32_t(thread) / 32; i < layout_.num_segments(); i += kRowWarps) {
      look_at_segment(i, uint32_t(thread) % 32, all, f);
    }
  }
  template <class Sum, class F>
  void sum_row(const Sum& none, const F& f) const {
    for (uint32_t i = 0; i < layout_.num_segments(); ++i) {
      Sum sum = none;
      for (uint32_t lane = 0; lane < 32; ++lane) {
        look_at_segment(i, lane, true, [&](const float4& four, uint32_t id) { f(sum, four, id); });
      }
      leader().segment_units[i] = sum.total();
    }
  }
  static void lower_by_warp(uint32_t& least, uint32_t bits) { least = std::min(least, bits); }
  template <class F>
  [[nodiscard]] int count_if(int n, const F& f) const {
    int count = 0;
    for (int i = 0; i < n; ++i) count += f(i) ? 1 : 0;
    return count;
  }
  void publish(const Decision& decision) const {
    for (BlockState& block : blocks_) block.decision = decision;
  }
  [[nodiscard]] Decision decision() const { return leader().decision; }

 private:
  [[nodiscard]] float at(uint32_t i) const {
    return i < row_.size() ? row_[i] : -heddle::sampling::kInfinity;
  }
  [[nodiscard]] float4 four_at(uint32_t id) const {
    return {at(id), at(id + 1), at(id + 2), at(id + 3)};
  }
  template <class F>
  [[nodiscard]] uint64_t sum_of_segment(uint32_t i, const F& f) const {
    const uint32_t part = i / kRowWarps % layout_.num_parts();
    const auto rank = static_cast<int>(i / kRowWarps / layout_.num_parts());
    uint64_t units = 0;
    for (int lane = 0; lane < 32; ++lane) units += f(rank, int(i % kRowWarps) * 32 + lane, part);
    return units;
  }
  template <class F>
  void look_at_segment(uint32_t i, uint32_t lane, bool all, const F& f) const {
    const uint32_t part = i / kRowWarps % layout_.num_parts();
    for (uint32_t c = 0; c < (all ? layout_.chunks_of_part(part) : 1); ++c) {
      const uint32_t id = layout_.first_id_of(i) + 128 * c + 4 * lane;
      f(four_at(id), id);
    }
  }

  std::span<const float> row_;
  const RowLayout layout_;
  const int leader_;
  mutable std::vector<BlockState> blocks_;
};

}  // namespace heddle::cuda::sampling
