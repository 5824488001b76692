#pragma once

#include "ops/attention/run/params.h"

namespace heddle::cuda::attention {

inline constexpr int kTileKeys = 16;  // that one warp takes at a time
/// A sequence is cut into segments by the number of keys that it shows alone, so that a row's bits do not depend on the batch: at most
/// kMaxSegments, of whole rounds of a block's tiles, and long enough for what a segment costs beside its keys. Short sequences are cut
/// shorter, so that a few of them keep a chip busy.
inline constexpr int kMaxSegments = 16;
inline constexpr int kSegmentUnit = 64;
inline constexpr int kMinSegmentKeys = 256;
inline constexpr int kShortKeys = 1024, kMinShortSegmentKeys = 128;

/// Costs are counted in tiles of keys, 32 bits: 2^32 of them are 17 TB of keys and values of 128 elements.
/// This is what beginning and ending a segment costs, found on an H200 with 32768 keys beside 63 sequences of one.
inline constexpr uint32_t kSegmentCost = 9;

inline constexpr int kDecodeRowTile = 8;      // rows of q in a tensor core product
inline constexpr int kDecodeWarps = 4;        // of a block
inline constexpr int kDecodeBlocksPerSm = 2;  // that run at once

/// Rows of q that share their keys in a block of the kernel for these heads.
[[nodiscard]] constexpr int decode_rows(int head_dim, int group_size) {
  return head_dim > 128 || group_size <= 8 ? 8 : 16;
}
/// Heads are taken as one of three sizes.
[[nodiscard]] constexpr int decode_dim(int head_dim) {
  return head_dim > 128 ? 256 : head_dim > 64 ? 128 : 64;
}

struct DecodeParams : AttentionKernelParams {
  int32_t num_blocks = 0;
  uint32_t blocks_per_sm = 1;  // in the work that share a multiprocessor; divides num_blocks
  uint32_t cluster_size = 1;   // divides num_blocks, too; see attention_decode_cluster_cuda.h
  uint32_t num_units = 0;      // of a sequence: kv heads, times the parts that groups are taken in
  int32_t unit_rows = 0;       // most rows of a unit
  int32_t partial_pairs = 0;   // of rows of a row tile in `partials`
  Divisor by_kv_heads;
  /// Blocks may begin by lengths and a page table that the kernel in front may still write (attention_decode_begin_cuda.h): the pages are
  /// those of a pool, each sequence has a thread, and costs fit into 32 bits even if each sequence had the whole table.
  bool can_start_on_stale_table = false;
  /// Every tile lies within a page, and rows begin at multiples of 16 bytes.
  bool has_whole_tiles = false;
};

/// Blocks of a launch: those that run at once, or as many as there may be segments where that is fewer than multiprocessors.
struct DecodeBlocks {
  int count, per_sm;
};
[[nodiscard]] DecodeBlocks select_decode_blocks(int64_t max_segments, int num_sms);

/// Blocks of a cluster, which may have a segment each of one unit: where units are so few that each can have a cluster with a
/// multiprocessor for each block, and sequences, of so many keys in the mean, so short that a block needs no more than one segment. Else 1.
[[nodiscard]] uint32_t select_cluster_size(int64_t num_units, int64_t mean_keys, int num_sms);

/// Floats of AttentionKernelParams::partials: the states that blocks leave for each other, see Partials.
[[nodiscard]] size_t decode_partial_floats(int64_t num_seqs, int num_kv_heads, int group_size,
                                           int head_dim, int num_sms);

/// At least that many for any number of kv heads.
[[nodiscard]] size_t max_decode_partial_floats(int64_t num_seqs, int64_t num_q_heads, int head_dim,
                                               int num_sms);

template <class T>
void launch_decode_of(const DecodeParams& p, const RotaryFrequencies* rope,
                      const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention
