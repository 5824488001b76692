#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ops/sampling/device_cluster_cuda.h"
#include "ops/sampling/row_sampler_cuda.h"

namespace heddle::cuda::sampling {

/// A Cluster (row_search_cuda.h) of one thread of the CPU, which takes the steps of all threads in
/// turn. What the kernels do beside their communication is tested by it without a GPU.
class HostCluster {
 public:
  HostCluster(std::span<const float> row, int num_blocks)
      : row_(row), blocks_(static_cast<size_t>(num_blocks)) {
    std::memset(static_cast<void*>(blocks_.data()), 0xFF, blocks_.size() * sizeof(BlockState));
  }

  [[nodiscard]] int num_blocks() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] bool is_leader() const { return true; }
  [[nodiscard]] BlockState& of(int rank) const { return blocks_[static_cast<size_t>(rank)]; }
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
  void leader_each(const F& f) const {
    for (int thread = 0; thread < kRowThreads; ++thread) f(of(0), thread);
  }
  template <class F>
  void tokens(int rank, int thread, const F& f) const {
    const auto vocab = static_cast<uint32_t>(row_.size());
    const auto step = static_cast<uint32_t>(num_blocks() * kChunk);
    for (auto id = static_cast<uint32_t>(rank * kChunk + 4 * thread); id < vocab; id += step) {
      for (uint32_t i = id; i < id + 4; ++i) {
        f(i < vocab ? row_[i] : -heddle::sampling::kInfinity, i);
      }
    }
  }
  template <class F>
  void largest_of_groups(const F& f) const {
    const int width = kRowThreads / kGroups * num_blocks();
    for (int rank = 0; rank < num_blocks(); ++rank) {
      for (int group = 0; group < kRowThreads / width; ++group) {
        float most = -heddle::sampling::kInfinity;
        for (int i = 0; i < width; ++i) most = std::fmax(most, f(rank, group * width + i));
        of(rank).group_maxima[group] = most;
      }
    }
  }
  void extremes(float& largest, float& bound) const {
    const float* const maxima = of(0).all_group_maxima;
    largest = -heddle::sampling::kInfinity;
    bound = heddle::sampling::kInfinity;
    for (int i = 0; i < kGroups; i += 2) {
      const float most = std::max(maxima[i], maxima[i + 1]);
      largest = std::max(largest, most);
      bound = std::min(bound, most);
    }
  }
  template <int kNumSums, class F>
  void sum(const F& f) const {
    for (int rank = 0; rank < num_blocks(); ++rank) {
      uint64_t all[2] = {0, 0};
      for (int thread = 0; thread < kRowThreads; ++thread) {
        const auto sums = f(of(rank), rank, thread);
        for (int i = 0; i < 2; ++i) all[i] += sums.a[i];
      }
      for (int i = 0; i < kNumSums; ++i) of(rank).units[i] = all[i];
    }
  }
  static uint32_t add(uint32_t& to, uint32_t n) {
    to += n;
    return to - n;
  }
  static void lower(uint32_t& least, uint32_t id) { least = std::min(least, id); }
  void sort(int n) const { std::sort(of(0).list, of(0).list + n); }
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
  [[nodiscard]] Decision decision() const { return of(0).decision; }

 private:
  std::span<const float> row_;
  mutable std::vector<BlockState> blocks_;
};

}  // namespace heddle::cuda::sampling
