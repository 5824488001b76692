#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
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
  void fours(int rank, int thread, const F& f, const G& look_at, bool /*is_last*/ = false) const {
    for (uint32_t chunk = 0; chunk < layout_.num_chunks; ++chunk) {
      const uint32_t id = layout_.first_id(uint32_t(rank), uint32_t(thread), chunk);
      const auto at = [&](uint32_t i) {
        return i < row_.size() ? row_[i] : -heddle::sampling::kInfinity;
      };
      if (!f(float4{at(id), at(id + 1), at(id + 2), at(id + 3)})) continue;
      for (uint32_t i = id; i < id + 4; ++i) look_at(at(i), i);
    }
  }
  [[nodiscard]] float tighter_bound(const RowBounds& bounds, int) const { return bounds.bound; }
  [[nodiscard]] bool has_from(int, int, float) const { return true; }
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
    for (int i = 0; i < kGroups / 4; ++i) {
      float four[4];
      for (int j = 0; j < 4; ++j) four[j] = leader().group_maxima[0][i + j * kGroups / 4];
      std::sort(four, four + 4);
      all = {std::max(all.largest, four[3]), std::min(all.bound, four[2])};
    }
    return all;
  }
  template <class F>
  void sum(int leader, int which, const F& f) const {
    for (int rank = 0; rank < num_blocks(); ++rank) {
      for (int warp = 0; warp < kRowWarps; ++warp) {
        uint64_t units = 0;
        for (int lane = 0; lane < 32; ++lane) units += f(rank, warp * 32 + lane);
        of(leader).warp_units[which][rank * kRowWarps + warp] = units;
      }
    }
  }
  [[nodiscard]] uint64_t total(int which) const {
    uint64_t units = 0;
    for (int i = 0; i < num_blocks() * kRowWarps; ++i) units += leader().warp_units[which][i];
    return units;
  }
  static uint32_t add(uint32_t& to, uint32_t n) {
    to += n;
    return to - n;
  }
  static void lower(uint32_t& least, uint32_t id) { least = std::min(least, id); }
  void sort(int n) const { std::sort(leader().list, leader().list + n); }
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
  std::span<const float> row_;
  const RowLayout layout_;
  const int leader_;
  mutable std::vector<BlockState> blocks_;
};

}  // namespace heddle::cuda::sampling
