#pragma once

#include <bit>
#include <cstdint>

#include "cuda/bulk_copy_cuda.h"

#include "ops/sampling/draw/weight.h"

// What the blocks that share a row keep of it. Tokens are identified by their place: ascending
// numbers in the order of choice, larger logits first, equal ones by id.

namespace heddle::cuda::sampling {

inline constexpr int kRowThreads = 512;
/// Tokens that one block sorts, bins of a histogram: one a thread.
inline constexpr int kMaxList = kRowThreads, kBins = kRowThreads;
inline constexpr int kRowWarps = kRowThreads / 32;
inline constexpr int kMaxBlocks = 8;
/// Slots of logits in shared memory (row_ring_cuda.h): a thread has so many at most, and they are
/// copied and looked at so many at once.
inline constexpr int kMaxSlots = 12, kSlotBatch = 4;
/// Groups of a row's threads, whose largest logits give a bound: of groups i, i + 32, i + 64 and
/// i + 96 the second largest, of these the least; -infinity where there are not so many. At least
/// 64 tokens are not below it. A search among the maxima raises it.
inline constexpr int kGroups = 128;

/// Which logits of a row a thread has: `num_chunks` times four neighbours. A warp has all of a
/// range of ids, ranges ascend by block and warp.
struct RowLayout {
  uint32_t num_blocks, num_chunks;

  [[nodiscard]] __host__ __device__ uint32_t ids_per_warp() const { return 128 * num_chunks; }
  [[nodiscard]] __host__ __device__ uint32_t first_id(uint32_t rank, uint32_t thread,
                                                      uint32_t chunk) const {
    return (rank * kRowWarps + thread / 32) * ids_per_warp() + 128 * chunk + 4 * (thread % 32);
  }
};

/// Places have the bits of a logit, descending, above those of an id.
struct Places {
  int id_bits;
  uint32_t id_mask;

  __host__ __device__ explicit Places(int64_t vocab_size) : id_bits(0), id_mask(0) {
    while ((vocab_size - 1) >> id_bits != 0) ++id_bits;
    id_mask = static_cast<uint32_t>((uint64_t{1} << id_bits) - 1);
  }
  [[nodiscard]] __host__ __device__ uint64_t place(uint32_t ascending, uint32_t id) const {
    return uint64_t{~ascending} << id_bits | id;
  }
  [[nodiscard]] __host__ __device__ uint64_t place_of(float logit, uint32_t id) const {
    return place(heddle::sampling::ascending_bits(logit), id);
  }
  [[nodiscard]] __host__ __device__ uint32_t ascending_of(uint64_t place) const {
    return ~static_cast<uint32_t>(place >> id_bits);
  }
  [[nodiscard]] __host__ __device__ uint32_t id_of(uint64_t place) const {
    return static_cast<uint32_t>(place) & id_mask;
  }
  [[nodiscard]] __host__ __device__ float logit_of(uint64_t place) const {
    return logit_of_bits(ascending_of(place));
  }
  [[nodiscard]] static __host__ __device__ float logit_of_bits(uint32_t ascending) {
    const uint32_t bits = ascending >> 31 != 0 ? ascending & 0x7fffffffu : ~ascending;
    return std::bit_cast<float>(bits);
  }
};

/// A sum over tokens.
struct Mass {
  uint64_t units, count;
};

/// A range of places, both ends in it, and the mass of the tokens before it. As the answer of
/// a search both ends are the token's place, and the mass has that token in it.
struct PlaceRange {
  uint64_t first, last;
  Mass before;
};

/// What the leader of a row sends to the others.
struct Decision {
  bool found;
  PlaceRange range;
  Mass mass;  // of the range; where nothing was found, of all that was searched
};

/// The largest logit of a row, and a bound that at least kGroups / 2 of its tokens are not below,
/// unless it is -infinity.
struct RowBounds {
  float largest, bound;
};

/// A block's own part. A batch is up to num_blocks rows, of which each has another leader.
struct BlockState {
  union {
    struct {
      uint64_t list[kMaxList];  // places
      union {
        uint64_t sums[kMaxList];   // running sums of units
        uint64_t inbox[kMaxList];  // of the leader: an equal part for the list of each block
      };
    };
    struct {  // a histogram: units low word, high word, tokens
      uint32_t low[kBins], high[kBins], count[kBins];
    };
  };
  alignas(16) float group_maxima[2][kGroups];  // of this row and the one before, in turn
  PhaseBarrier maxima_come[2];                 // until they have arrived
  PhaseBarrier copied[kRowWarps][kMaxSlots / kSlotBatch];  // of the ring
  uint64_t warp_units[2][kMaxBlocks * kRowWarps];  // of the leader: sums of all warps, by id
  Mass warp_masses[kRowWarps];                     // of this block's warps, for its threads
  RowBounds bounds[kMaxBlocks];                    // of the batch's rows
  uint32_t list_sizes[kMaxBlocks];  // tokens it had for each row's inbox, with or without room
  uint32_t lowest_ids[kMaxBlocks];  // of each row's largest logit; all ones where it has none
  // Of the row that it leads: these of all blocks.
  uint32_t all_list_sizes[kMaxBlocks], all_lowest_ids[kMaxBlocks];
  bool needs_search[kMaxBlocks];  // what each row's leader says
  uint32_t least;                 // bits of the least logit, in a search
  uint32_t
      list_size;    // tokens that belong in `list`, in a search; those past kMaxList are left out
  uint32_t chosen;  // by one thread
  Decision decision;
};

}  // namespace heddle::cuda::sampling
