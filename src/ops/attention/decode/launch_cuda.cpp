#include <algorithm>

#include "ops/attention/decode/decode_params.h"

namespace heddle::cuda::attention {
namespace {

int units_of_sequence(int num_kv_heads, int group_size, int head_dim) {
  const int rows = decode_rows(head_dim, group_size);
  return num_kv_heads * ((group_size + rows - 1) / rows);
}
/// Pairs of rows in a row tile whose state is kept.
int partial_pairs(int group_size) { return (std::min(group_size, kDecodeRowTile) + 1) / 2; }
/// The segments of a sequence of so many keys, at most: see cut_sequence() in attention_decode_work_cuda.h.
int64_t max_segments_of(int64_t keys) {
  const int shortest = keys > kShortKeys ? kMinSegmentKeys : kMinShortSegmentKeys;
  return std::min<int64_t>((keys + shortest - 1) / shortest, kMaxSegments);
}
/// See DecodeParams::guesses_share.
bool can_start_on_stale_table(const AttentionKernelParams& p, int64_t all_units) {
  const int64_t keys = p.num_pages * p.kv.page_size;  // a sequence has fewer than 2^31
  const int64_t cost = all_units * (keys / kTileKeys + 1 + kMaxSegments * int64_t{kSegmentCost});
  return p.kv.pool_pages > 0 && p.num_seqs <= 32 * kDecodeWarps && keys < int64_t{1} << 31 &&
         cost < int64_t{1} << 32;
}
size_t partial_floats(int64_t max_segments, int group_size, int head_dim, int num_sms) {
  const int64_t blocks = select_decode_blocks(max_segments, num_sms).count;
  const int row_tiles = decode_rows(head_dim, group_size) / kDecodeRowTile;
  const int groups = (decode_dim(head_dim) / 16 + 1) * 8 * partial_pairs(group_size);
  return static_cast<size_t>(blocks * kMaxSegments * row_tiles * groups * 4);
}

}  // namespace

DecodeBlocks select_decode_blocks(int64_t max_segments, int num_sms) {
  if (max_segments <= num_sms) return {static_cast<int>(max_segments), 1};
  return {num_sms * kDecodeBlocksPerSm, kDecodeBlocksPerSm};
}

uint32_t select_cluster_size(int64_t num_units, int64_t mean_keys, int num_sms) {
  constexpr int kSmall = 4, kLarge = 8;  // no chip has larger ones but on request
  const bool is_short = mean_keys <= kSmall * kMinShortSegmentKeys;
  if (!is_short && mean_keys > kLarge * kMinSegmentKeys) return 1;
  const int size = is_short ? kSmall : kLarge;
  return num_units * size <= num_sms ? static_cast<uint32_t>(size) : 1;
}

size_t decode_partial_floats(int64_t num_seqs, int num_kv_heads, int group_size, int head_dim,
                             int num_sms) {
  const int64_t units = num_seqs * units_of_sequence(num_kv_heads, group_size, head_dim);
  return partial_floats(units * kMaxSegments, group_size, head_dim, num_sms);
}

size_t max_decode_partial_floats(int64_t num_seqs, int64_t num_q_heads, int head_dim, int num_sms) {
  const auto group_size = static_cast<int>(std::min<int64_t>(num_q_heads, 2 * kDecodeRowTile));
  return partial_floats(num_seqs * num_q_heads * kMaxSegments, group_size, head_dim, num_sms);
}

void launch_decode(const AttentionKernelParams& call, const RotaryFrequencies* rope,
                   const AttentionLaunch& launch) {
  DecodeParams p;
  static_cast<AttentionKernelParams&>(p) = call;
  const int rows = decode_rows(p.head_dim, p.group_size);
  const int units = units_of_sequence(p.num_kv_heads, p.group_size, p.head_dim);
  const int64_t all_units = int64_t{p.num_seqs} * units;
  const int64_t mean_keys = p.num_pages * p.kv.page_size / p.num_seqs;  // at most
  constexpr int kFirstWithClusters = 90;
  if (launch.info.compute_capability >= kFirstWithClusters) {
    p.cluster_size = select_cluster_size(all_units, mean_keys, launch.info.num_sms);
  }
  const DecodeBlocks blocks =
      p.cluster_size > 1 ? DecodeBlocks{static_cast<int>(all_units * p.cluster_size), 1}
                         : select_decode_blocks(all_units * kMaxSegments, launch.info.num_sms);
  p.num_blocks = blocks.count;
  // Neighbours share a multiprocessor, but those that have nothing to do should not.
  const bool are_few = all_units * max_segments_of(mean_keys) < p.num_blocks;
  p.blocks_per_sm = are_few ? 1 : static_cast<uint32_t>(blocks.per_sm);
  p.num_units = static_cast<uint32_t>(units);
  p.unit_rows = rows;
  p.by_kv_heads = Divisor(static_cast<uint32_t>(p.num_kv_heads));
  p.partial_pairs = partial_pairs(p.group_size);
  p.can_start_on_stale_table = can_start_on_stale_table(p, all_units);
  p.has_whole_tiles = p.kv.is_aligned && p.kv.page_size % kTileKeys == 0;
  if (p.num_counters < p.num_blocks) p.partials = nullptr;
  if (launch.dtype == DType::kFloat16) return launch_decode_of<half>(p, rope, launch);
  launch_decode_of<bfloat16>(p, rope, launch);
}

}  // namespace heddle::cuda::attention
