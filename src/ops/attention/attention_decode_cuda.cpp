#include <algorithm>

#include "ops/attention/attention_decode_params.h"

namespace heddle::cuda {
namespace {

constexpr int kBlocksPerSm = 2;

int64_t max_segments(int64_t num_seqs, int num_kv_heads, int group_size, int head_dim) {
  const int rows = decode_rows(head_dim, group_size);
  return num_seqs * num_kv_heads * ((group_size + rows - 1) / rows) * kMaxSegments;
}

}  // namespace

DecodeBlocks select_decode_blocks(int64_t max_segments, int num_sms) {
  if (max_segments <= num_sms) return {static_cast<int>(max_segments), 1};
  return {num_sms * kBlocksPerSm, kBlocksPerSm};
}

size_t decode_partial_floats(int64_t num_seqs, int num_kv_heads, int group_size, int head_dim,
                             int num_sms) {
  const int64_t blocks =
      select_decode_blocks(max_segments(num_seqs, num_kv_heads, group_size, head_dim), num_sms)
          .count;
  const int rows = std::min(group_size, decode_rows(head_dim, group_size));
  return static_cast<size_t>(blocks * kMaxSegments * rows * (decode_dim(head_dim) + 4));
}

size_t most_decode_partial_floats(int64_t num_seqs, int64_t num_q_heads, int head_dim,
                                  int num_sms) {
  const int64_t blocks = select_decode_blocks(num_seqs * num_q_heads * kMaxSegments, num_sms).count;
  const int64_t rows = std::min<int64_t>(num_q_heads, 16);
  return static_cast<size_t>(blocks * kMaxSegments * rows * (decode_dim(head_dim) + 4));
}

void launch_decode(const AttentionKernelParams& call, const RotaryFrequencies* rope,
                   const AttentionLaunch& launch) {
  DecodeParams p;
  static_cast<AttentionKernelParams&>(p) = call;
  const DecodeBlocks blocks = select_decode_blocks(
      max_segments(p.num_seqs, p.num_kv_heads, p.group_size, p.head_dim), launch.info.num_sms);
  p.num_blocks = blocks.count;
  p.blocks_per_sm = static_cast<uint32_t>(blocks.per_sm);
  p.partial_rows = std::min(p.group_size, decode_rows(p.head_dim, p.group_size));
  p.has_whole_tiles = p.kv.is_aligned && p.kv.page_size % kTileKeys == 0;
  if (p.num_counters < p.num_blocks) p.partials = nullptr;
  if (launch.dtype == DType::kFloat16) return launch_decode_of<half>(p, rope, launch);
  launch_decode_of<bfloat16>(p, rope, launch);
}

}  // namespace heddle::cuda
