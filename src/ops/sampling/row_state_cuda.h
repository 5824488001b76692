#pragma once

#include <cstdint>

#include "ops/sampling/weight.h"

// What the blocks that share a row keep of it. Tokens are told by their place: ascending numbers in
// the order of choice, larger logits first, equal ones by id.

namespace heddle::cuda::sampling {

inline constexpr int kRowThreads = 512;
/// Tokens that one block sorts, bins of a histogram: one a thread.
inline constexpr int kMaxList = kRowThreads, kBins = kRowThreads;
/// Groups of a row's threads whose largest logits give a bound: of two groups each the larger one,
/// of these the least. At least kGroups / 2 tokens are not below it.
inline constexpr int kGroups = 128;
inline constexpr int kMaxBlocks = 8;

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

/// A range of places, both ends in it, and the mass of the tokens in front of it. As the answer of
/// a search both ends are the token's place, and the mass has that token in it.
struct PlaceRange {
  uint64_t first, last;
  Mass before;
};

/// What the leader, block 0, tells the others.
struct Decision {
  bool found;
  PlaceRange range;
  Mass mass;  // of the range; where nothing was found, of all that was searched
};

/// A block's own part.
struct BlockState {
  union {
    struct {
      uint64_t list[kMaxList];  // places
      uint64_t sums[kMaxList];  // running sums of units
    };
    struct {  // a histogram: units low word, high word, tokens
      uint32_t low[kBins], high[kBins], count[kBins];
    };
  };
  float group_maxima[kGroups];      // of its own groups, kGroups / num_blocks of them
  float all_group_maxima[kGroups];  // of the row
  uint64_t units[2];                // sums over its logits
  uint32_t list_size;  // tokens that belong in its list; those past kMaxList are left out
  uint32_t lowest_id;  // of the largest logit; all ones where it has none
  Decision decision;
};

}  // namespace heddle::cuda::sampling
