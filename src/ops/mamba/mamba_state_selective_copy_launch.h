#pragma once

#include <cstdint>

#include "ops/mamba/mamba_state_selective_copy_kernels.h"

namespace heddle::cuda {

/// A vector of i32 or i64, or one such element; without data: absent.
struct IndexVector {
  const std::byte* data;
  int64_t step;  // bytes
  bool is_wide;
};

/// A state, cut into pieces that one block copies each.
struct StatePieces {
  StateCopy copy;
  int32_t first_piece, num_pieces;  // of all pieces of the states, in their order
  int32_t word_bytes;               // all addresses and steps are multiples of it: 16, 4, 2 or 1
};

/// Two states, those of the convolution and of the scan, stay below 256 bytes.
template <int kStates>
struct SelectiveCopyLaunch {
  IndexVector prefill_status, state_idx, accepted_counts;  // [num_requests]
  IndexVector num_active;                                  // [1], or absent: max_active
  int64_t num_layers, max_active;
  int64_t piece_bytes;
  int32_t num_states;
  StatePieces states[kStates];
};

/// Bytes that a block copies: as many as keep four loads of each thread on the way, or one where that gives too few blocks to use the
/// chip. The bytes that are copied do not depend on it.
inline constexpr int kCopyThreads = 256, kCopyUnroll = 4;
inline constexpr int64_t kSmallPiece = kCopyThreads * 16, kLargePiece = kSmallPiece * kCopyUnroll;
[[nodiscard]] constexpr int64_t piece_bytes_of(int64_t bytes, int num_sms) {
  return bytes / kLargePiece >= int64_t{8} * num_sms ? kLargePiece : kSmallPiece;
}
static_assert(piece_bytes_of(134 << 10, 132) == kSmallPiece);
static_assert(piece_bytes_of(int64_t{64} << 20, 132) == kLargePiece);

/// The largest of 16, 4, 2 and 1 that divides all addresses and steps.
[[nodiscard]] inline int32_t word_bytes_of(const StateCopy& s) {
  const uint64_t bits =
      reinterpret_cast<uint64_t>(s.current) | reinterpret_cast<uint64_t>(s.intermediate) |
      static_cast<uint64_t>(s.current_layer_step) | static_cast<uint64_t>(s.current_slot_step) |
      static_cast<uint64_t>(s.intermediate_layer_step) |
      static_cast<uint64_t>(s.intermediate_slot_step) |
      static_cast<uint64_t>(s.intermediate_token_step);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
}

}  // namespace heddle::cuda
