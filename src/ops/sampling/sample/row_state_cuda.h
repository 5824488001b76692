#pragma once

#include <bit>
#include <cstdint>

#include "cuda/bulk_copy_cuda.h"

#include "ops/sampling/draw/weight.h"

// What the blocks that share a row keep of it. Tokens are identified by their place: ascending
// numbers in the order of choice, larger logits first, equal ones by id.

namespace heddle::cuda::sampling {

inline constexpr int kRowThreads = 1024;
/// Tokens that one block sorts, bins of a histogram: one a thread.
inline constexpr int kMaxList = kRowThreads, kBins = kRowThreads;
/// Tokens that a leader gets from all blocks.
inline constexpr int kInbox = kRowThreads;
/// Of a search for a share (share_search_cuda.h): bins of its first look, tokens that it lists, and
/// parts of a list.
inline constexpr int kShareBins = 2 * kRowThreads, kMaxShare = 4 * kRowThreads;
inline constexpr int kShareParts = kRowThreads / 2;
/// Of so many tokens all pairs are compared, rather than sorting them.
inline constexpr int kFewPairs = 128;
inline constexpr int kRowWarps = kRowThreads / 32;
inline constexpr int kMaxBlocks = 8;
/// Slots of logits in shared memory (row_ring_cuda.h): a thread has so many at most, and they are
/// copied and looked at so many at once.
inline constexpr int kMaxSlots = 12, kSlotBatch = 4;
/// Times kSlotBatch chunks whose largest logits are kept apart, for each warp.
inline constexpr int kMaxBatches = 16;
/// Parts of a row (RowLayout) at most.
inline constexpr int kMaxParts = 4;
/// Groups of a row's threads, whose largest logits give a bound: of groups i, i + 32, i + 64 and so
/// on the second largest, of these the least; -infinity where there are not so many. At least
/// 64 tokens are not below it. A search among the maxima finds one for another number of them.
inline constexpr int kGroups = 256, kGroupsPerLane = kGroups / 32;

[[nodiscard]] __host__ __device__ inline float largest_of(const float4& four) {
  return fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
}

/// Which logits of a row a thread has: `num_chunks` times four neighbours. A block has a range of
/// ids, its parts have ranges of that, and its warps of each part: they ascend by block, part and
/// warp. A part is of kSlotBatch chunks, so that what warps copy at a time are neighbours; of more
/// where there would be too many parts. A segment is what a warp has of a part.
struct RowLayout {
  uint32_t num_blocks, num_chunks, part_bits;

  __host__ __device__ RowLayout(uint32_t blocks, uint32_t chunks)
      : num_blocks(blocks), num_chunks(chunks), part_bits(kLeastPartBits) {
    while (num_parts() > uint32_t{kMaxParts}) ++part_bits;
  }
  [[nodiscard]] __host__ __device__ uint32_t num_parts() const {
    return (num_chunks + (1u << part_bits) - 1) >> part_bits;
  }
  [[nodiscard]] __host__ __device__ uint32_t num_segments() const {
    return num_blocks * num_parts() * kRowWarps;
  }
  [[nodiscard]] __host__ __device__ uint32_t chunks_of_part(uint32_t part) const {
    const uint32_t left = num_chunks - (part << part_bits);
    return left < 1u << part_bits ? left : 1u << part_bits;
  }
  [[nodiscard]] __host__ __device__ uint32_t segment(uint32_t rank, uint32_t part,
                                                     uint32_t warp) const {
    return (rank * num_parts() + part) * kRowWarps + warp;
  }
  [[nodiscard]] __host__ __device__ uint32_t first_id(uint32_t rank, uint32_t thread,
                                                      uint32_t chunk) const {
    const uint32_t part = chunk >> part_bits, in_part = chunk & ((1u << part_bits) - 1);
    const uint32_t before = kRowWarps * (rank * num_chunks + (part << part_bits));
    return kChunkIds * (before + thread / 32 * chunks_of_part(part) + in_part) + 4 * (thread % 32);
  }
  /// The first id of segment i.
  [[nodiscard]] __host__ __device__ uint32_t first_id_of(uint32_t i) const {
    const uint32_t block_part = i / kRowWarps, rank = block_part / num_parts();
    const uint32_t part = block_part - rank * num_parts();
    return first_id(rank, i % kRowWarps * 32, part << part_bits);
  }
  [[nodiscard]] __host__ __device__ uint32_t segment_of(uint32_t id) const {
    const uint32_t chunk = id / kChunkIds, of_block = kRowWarps * num_chunks,
                   rank = chunk / of_block;
    const uint32_t in_block = chunk - rank * of_block;
    const uint32_t part = (in_block / kRowWarps) >> part_bits;
    const uint32_t in_part = in_block - kRowWarps * (part << part_bits);
    return segment(rank, part, in_part / chunks_of_part(part));
  }

 private:
  static constexpr uint32_t kLeastPartBits = 2, kChunkIds = 128;  // ids of a warp
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

/// The lowest token of the largest logit, as a number that is larger for a better one.
struct LeadingToken {
  uint64_t value;

  __host__ __device__ LeadingToken(float logit, uint32_t id)
      : value(uint64_t{heddle::sampling::ascending_bits(logit)} << 32 |
              static_cast<uint32_t>(~id)) {}
  __host__ __device__ explicit LeadingToken(uint64_t its_value) : value(its_value) {}
  [[nodiscard]] __host__ __device__ float logit() const {
    return Places::logit_of_bits(static_cast<uint32_t>(value >> 32));
  }
  [[nodiscard]] __host__ __device__ uint32_t id() const { return ~static_cast<uint32_t>(value); }
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

/// The largest logit of a row, and a bound that at least 64 of its tokens are not below, unless it
/// is -infinity. Once its tokens are collected: the least logit of those that are listed.
struct RowBounds {
  float largest, bound;
};

/// A block's own part. A batch is up to num_blocks rows, of which each has another leader.
struct BlockState {
  uint64_t inbox[kInbox];  // of the leader: an equal part for the list of each block
  // Of this row: the largest logits that each warp has in kSlotBatch chunks, or in the last ones.
  float batch_maxima[kRowWarps][kMaxBatches];
  alignas(16) float group_maxima[2][kGroups];  // of this row and the one before, in turn
  PhaseBarrier maxima_come[2];                 // until they have arrived
  PhaseBarrier copied[kRowWarps][kMaxSlots / kSlotBatch];  // of the ring
  // Of the leader: sums of all segments, by id; of a greedy row the first tokens of all warps
  // (LeadingToken). Those at temperature 1, by warp.
  uint64_t segment_units[kMaxBlocks * kMaxParts * kRowWarps], one_units[kMaxBlocks * kRowWarps];
  Mass warp_masses[kRowWarps];          // of this block's warps, for its threads
  RowBounds bounds[kMaxBlocks];         // of the batch's rows
  uint32_t list_sizes[kMaxBlocks];      // tokens it had for each row's inbox, with or without room
  uint32_t all_list_sizes[kMaxBlocks];  // of the row that it leads: these of all blocks
  bool needs_search[kMaxBlocks];        // what each row's leader says
  uint32_t least;                       // bits of the least logit, in a search
  uint32_t
      list_size;    // tokens that belong in `list`, in a search; those past kMaxList are left out
  uint32_t chosen;  // by one thread
  Decision decision;
  union alignas(128) {
    float4 slots[1];  // of the ring, as many as there is room for
    struct {          // what is needed once the rows of a batch are collected
      union {
        struct {
          uint64_t list[kInbox];  // places
          uint64_t sums[kInbox];  // running sums of units
        };
        struct {  // a histogram: units low word, high word, tokens
          uint32_t low[kBins], high[kBins], count[kBins];
        };
      };
      uint32_t share_counts[kShareBins];
      uint64_t share_units[kShareParts], share_part[kShareParts];  // of parts; tokens of one part
      uint64_t share_list[kMaxShare];
    };
  };
};

}  // namespace heddle::cuda::sampling
