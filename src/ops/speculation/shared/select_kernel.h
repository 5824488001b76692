#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>

#include "cuda/list_sums_cuda.h"

#include "core/math.h"

namespace heddle::cuda::speculation {

// Which kernel a call of prepare_next_forward_pass, rewind_kv_cache or speculative_step takes.

/// Threads of a block where there are few requests: then they spread over many multiprocessors.
inline constexpr int kGroupThreads = 64;
/// More of them where that makes more blocks than this, which would wait for one another, up to so
/// many threads.
inline constexpr int kManyGroupBlocks = 32, kFewGroupThreads = 256;
/// More still where there are not words for so many blocks.
inline constexpr int kMaxGroupThreads = 512;
/// A list is made without tickets (list_sums_cuda.h) by one block or one cluster of blocks with at
/// most so many threads: larger ones take longer than tickets do.
inline constexpr int kMaxListThreads = 512, kMaxClusterBlocks = 8;
/// Threads of a block of the general kernels; up to so many where one block makes a list.
inline constexpr int kGeneralThreads = 64, kListThreads = 256;

/// What the choice is made by.
struct SpeculationCall {
  int64_t num_rows = 0;        // requests, or elements of an output where there are more
  int64_t tokens_per_row = 1;  // each has a lane in its request's lane group
  bool is_large = false;       // 32 bits do not hold a size, or a product of sizes
  bool has_gaps = false;       // elements of an index tensor or of a mask are not neighbours
  bool is_listed = false;      // released ids go into a list, in request order
  bool has_list_sums = false;  // the exchange has words for blocks that make a list together
  bool has_clusters = false;   // blocks can run as a cluster
  bool has_next_step = false;  // a block has twice the threads
};

enum class SpeculationKernel { kLaneGroups, kGeneral };
/// group_shift: a request has 1 << group_shift lanes in kLaneGroups, one thread in kGeneral.
struct SpeculationChoice {
  SpeculationKernel kernel = SpeculationKernel::kGeneral;
  unsigned blocks = 0, threads = 0;
  int group_shift = 0;
  unsigned cluster_size = 1;
  bool has_tickets = false;  // list_sums_cuda.h, ListOrder::kStarted

  friend constexpr bool operator==(const SpeculationChoice&, const SpeculationChoice&) = default;
  friend std::ostream& operator<<(std::ostream& out, const SpeculationChoice& c) {
    const bool has_groups = c.kernel == SpeculationKernel::kLaneGroups;
    out << (has_groups ? "lane_groups" : "general");
    if (has_groups) out << " lanes=" << (1 << c.group_shift);
    out << " blocks=" << c.blocks << " threads=" << c.threads;
    if (c.cluster_size > 1) out << " cluster=" << c.cluster_size;
    return out << (c.has_tickets ? " tickets" : "");
  }
};

/// The lanes for a request of `tokens` tokens as a shift; -1 where half a warp has too few.
[[nodiscard]] constexpr int select_group_shift(int64_t tokens) {
  for (int shift = 0; shift < 5; ++shift) {
    if (tokens <= int64_t{1} << shift) return shift;
  }
  return -1;
}

/// A thread a request. A list is made by one block, since a request's place in it depends on all
/// before it.
[[nodiscard]] constexpr SpeculationChoice general_choice(const SpeculationCall& call) {
  const int64_t rows = std::max<int64_t>(call.num_rows, 1);
  if (!call.is_listed) {
    return {.blocks = static_cast<unsigned>(ceil_div(rows, kGeneralThreads)),
            .threads = kGeneralThreads};
  }
  const int64_t threads = std::min<int64_t>(round_up(rows, 32), kListThreads);
  return {.blocks = 1, .threads = static_cast<unsigned>(threads)};
}

/// Lane groups where they can: tensors without gaps, few tokens, and a list made by one block, by a
/// cluster, or by as many blocks as the exchange has words for.
[[nodiscard]] constexpr SpeculationChoice select_speculation_kernel(const SpeculationCall& call) {
  const int shift = select_group_shift(call.tokens_per_row);
  if (shift < 0 || call.is_large || call.has_gaps) return general_choice(call);
  const int64_t max_blocks = !call.is_listed      ? std::numeric_limits<int32_t>::max()
                             : call.has_list_sums ? kMaxListBlocks
                                                  : 1;
  const int64_t max_cluster = call.has_list_sums && call.has_clusters ? kMaxClusterBlocks : 1;
  const int64_t lanes = std::max<int64_t>(call.num_rows, 1) << shift;
  const int threads_per_lane = call.has_next_step ? 2 : 1;
  SpeculationChoice choice{.kernel = SpeculationKernel::kLaneGroups, .group_shift = shift};
  // The fewest threads of a block with which `fits(blocks, threads)`.
  const auto choose = [&](const auto& fits) {
    for (int threads = kGroupThreads; threads <= kMaxGroupThreads; threads *= 2) {
      const int64_t blocks = ceil_div(lanes, threads);
      if (!fits(blocks, threads)) continue;
      choice.blocks = static_cast<unsigned>(blocks);
      choice.threads = static_cast<unsigned>(threads);
      return true;
    }
    return false;
  };
  if (call.is_listed) {
    for (const int64_t most : {int64_t{1}, max_cluster}) {
      if (choose([&](int64_t blocks, int threads) {
            return blocks <= most && threads * threads_per_lane <= kMaxListThreads;
          })) {
        choice.cluster_size = choice.blocks;
        return choice;
      }
    }
  }
  if (choose([&](int64_t blocks, int threads) {
        return blocks <= max_blocks && (threads >= kFewGroupThreads || blocks <= kManyGroupBlocks);
      })) {
    choice.has_tickets = call.is_listed && choice.blocks > 1;
    return choice;
  }
  return general_choice(call);
}

}  // namespace heddle::cuda::speculation
