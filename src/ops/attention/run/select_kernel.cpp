#include "ops/attention/run/select_kernel.h"

#include <algorithm>
#include <ostream>

#include "core/math.h"
#include "ops/attention/decode/decode_params.h"
#include "ops/attention/decode/exchange.h"
#include "ops/attention/prefill/prefill_params.h"

namespace heddle::cuda::attention {
namespace {

constexpr int kNumCounters = static_cast<int>(kDecodeCounters.bytes / sizeof(uint32_t));
constexpr int kFirstWithClusters = 90;

/// Kernels have instances for heads of these sizes; smaller heads are taken with zeros after them.
int instance_dim(int head_dim) { return head_dim > 128 ? 256 : head_dim > 64 ? 128 : 64; }

/// Of a query, or of a bundle.
int units_of_sequence(const AttentionCall& call) {
  const int rows = decode_rows(call.head_dim, call.group_size, call.max_bundle);
  return call.num_kv_heads * ceil_div(call.group_size, rows);
}
/// That are cut and scheduled: bundles, or each query alone.
int64_t num_scheduled(const AttentionCall& call) {
  return call.num_bundles > 0 ? call.num_bundles : call.num_seqs;
}

/// The segments of a sequence of so many keys, at most: see call/decode_cut.h.
int64_t max_segments_of(int64_t keys) {
  const int shortest = keys > kShortKeys ? kMinSegmentKeys : kMinShortSegmentKeys;
  return std::min<int64_t>(ceil_div(keys, shortest), kMaxSegments);
}

struct Blocks {
  int64_t count;
  int per_sm;
};
/// Those that run at the same time, or as many as there may be segments where that is fewer than
/// multiprocessors.
Blocks select_blocks(int64_t max_segments, int num_sms) {
  if (max_segments <= num_sms) return {max_segments, 1};
  return {int64_t{num_sms} * kDecodeBlocksPerSm, kDecodeBlocksPerSm};
}

constexpr int kSmallCluster = 4, kLargeCluster = 8;  // no chip has larger ones but on request

/// Of clusters that run at the same time: three quarters of what would have room alone.
int64_t max_cluster_blocks(const DeviceInfo& info) {
  return int64_t{info.num_sms} * kDecodeBlocksPerSm * 3 / 4;
}
/// Blocks of a cluster, which have a segment each of one unit; 1: no clusters. For units so few
/// that all clusters run at the same time; not all places that chips have can be those of clusters.
int select_cluster_size(int64_t num_units, int64_t mean_keys, const DeviceInfo& info) {
  if (info.compute_capability < kFirstWithClusters) return 1;
  const bool is_short = mean_keys <= kSmallCluster * kMinShortSegmentKeys;
  const int size = is_short ? kSmallCluster : kLargeCluster;
  // Long sequences are cut into kMaxSegments, for which blocks without clusters have places.
  const int64_t long_segments = num_units * kMaxSegments;
  const bool may_be_long = mean_keys > kLargeCluster * kMinSegmentKeys;
  if (may_be_long && long_segments > max_cluster_blocks(info) &&
      long_segments <= int64_t{info.num_sms} * kDecodeBlocksPerSm) {
    return 1;
  }
  return num_units * size <= max_cluster_blocks(info) ? size : 1;
}
/// A cluster for each unit, and where there is room for sequences of more segments than a cluster
/// has blocks, more of them: such sequences are cut among all blocks.
Blocks select_clusters(int64_t num_units, int64_t mean_keys, int size, const DeviceInfo& info) {
  const bool is_one_each = mean_keys <= kLargeCluster * kMinSegmentKeys;
  const int64_t segments = num_units * (is_one_each ? size : kMaxSegments);
  return {std::min(segments, max_cluster_blocks(info) / size * size), 1};
}

/// See AttentionChoice.
bool can_start_on_stale_table(const AttentionCall& call, int64_t num_units) {
  const int64_t keys = call.table_keys;  // a sequence has fewer than 2^31
  const int64_t cost = num_units * (keys / kTileKeys + 1 + kMaxSegments * int64_t{kSegmentCost});
  return call.has_pool && call.num_bundles == 0 && call.num_seqs <= 32 * kDecodeWarps &&
         keys < int64_t{1} << 31 && cost < int64_t{1} << 32;
}

AttentionChoice select_decode(const AttentionCall& call, const DeviceInfo& info) {
  AttentionChoice c;
  c.route = AttentionRoute::kDecode;
  c.rotates = call.rotates;
  c.reads_codes = call.has_codes;
  c.dim = instance_dim(call.head_dim);
  c.rows = decode_rows(call.head_dim, call.group_size, call.max_bundle);
  c.units_per_seq = units_of_sequence(call);
  const int64_t num_units = num_scheduled(call) * c.units_per_seq;
  const int64_t mean_keys = call.table_keys / call.num_seqs;  // at most
  c.cluster_size = select_cluster_size(num_units, mean_keys, info);
  const Blocks blocks = c.cluster_size > 1
                            ? select_clusters(num_units, mean_keys, c.cluster_size, info)
                            : select_blocks(num_units * kMaxSegments, info.num_sms);
  c.num_blocks = blocks.count;
  // Blocks that are side by side in the work share a multiprocessor, but not where many have
  // nothing to do.
  const bool are_few = num_units * max_segments_of(mean_keys) < blocks.count;
  c.blocks_per_sm = are_few ? 1 : blocks.per_sm;
  c.shares_units = call.has_scratch && blocks.count <= kNumCounters;
  c.can_start_on_stale_table = can_start_on_stale_table(call, num_units);
  c.has_whole_tiles = call.is_kv_aligned && call.page_size % kTileKeys == 0;
  return c;
}

/// The one chip whose products the kernel for 9.0 uses.
constexpr int kSm90 = 90;

AttentionChoice select_prefill(const AttentionCall& call, const DeviceInfo& info) {
  AttentionChoice c;
  const bool is_general = call.rotates || call.transforms_scores || call.has_tree_masks ||
                          !call.is_q_aligned || !call.is_kv_aligned;
  // Of the portable kernels the general one alone reads codes.
  const bool is_general_portable = is_general || call.has_codes;
  c.route = is_general_portable ? AttentionRoute::kGeneralPrefill : AttentionRoute::kPrefill;
  c.rotates = call.rotates;
  c.reads_codes = call.has_codes;
  c.dim = instance_dim(call.head_dim);
  if (!is_general && info.compute_capability == kSm90 && c.dim <= 128) {
    c.route = AttentionRoute::kPrefillSm90;
  }
  c.rows = prefill_rows(call.head_dim, c.route == AttentionRoute::kGeneralPrefill);
  // Each sequence adds up to one tile of rows that is not full.
  const int64_t tiles = call.num_tokens * call.group_size / c.rows + call.num_seqs;
  c.num_blocks = tiles * call.num_kv_heads;
  return c;
}

size_t partial_floats_of(int64_t max_segments, int group_size, int max_bundle, int head_dim,
                         int num_sms) {
  const int64_t blocks = select_blocks(max_segments, num_sms).count;
  const int row_tiles = decode_rows(head_dim, group_size, max_bundle) / kDecodeRowTile;
  const int groups =
      (instance_dim(head_dim) / 16 + 1) * 8 * decode_row_pairs(group_size * max_bundle);
  return static_cast<size_t>(blocks * kMaxSegments * row_tiles * groups * 4);
}

const char* name_of(AttentionRoute route) {
  switch (route) {
    case AttentionRoute::kDecode: return "decode";
    case AttentionRoute::kPrefill: return "prefill";
    case AttentionRoute::kPrefillSm90: return "prefill sm90";
    case AttentionRoute::kGeneralPrefill: return "general prefill";
  }
  return "?";
}

}  // namespace

AttentionChoice select_attention_kernel(const AttentionCall& call, const DeviceInfo& info) {
  return call.is_decode ? select_decode(call, info) : select_prefill(call, info);
}

size_t partial_floats(const AttentionCall& call, int num_sms) {
  const int64_t units = num_scheduled(call) * units_of_sequence(call);
  return partial_floats_of(units * kMaxSegments, call.group_size, call.max_bundle, call.head_dim,
                           num_sms);
}

size_t max_partial_floats(int64_t num_seqs, int64_t num_q_heads, int head_dim, int num_sms) {
  return partial_floats_of(num_seqs * num_q_heads * kMaxSegments, 2, kMaxBundle, head_dim, num_sms);
}

std::ostream& operator<<(std::ostream& os, const AttentionCall& call) {
  os << (call.is_decode ? "batch_decode" : "batch_prefill") << ": " << call.num_tokens
     << " tokens of " << call.num_seqs << " sequences, heads " << call.num_kv_heads << " x "
     << call.group_size << " of " << call.head_dim << ", room for " << call.table_keys
     << " keys in pages of " << call.page_size;
  if (call.num_bundles > 0) {
    os << ", in " << call.num_bundles << " bundles of up to " << call.max_bundle;
  }
  if (!call.has_pool) os << ", page addresses";
  if (!call.is_q_aligned) os << ", q not aligned";
  if (!call.is_kv_aligned) os << ", cache not aligned";
  if (call.has_codes) os << ", codes";
  if (call.rotates) os << ", rotates";
  if (call.transforms_scores) os << ", transforms scores";
  if (call.has_tree_masks) os << ", tree masks";
  if (call.is_decode && !call.has_scratch) os << ", no scratch";
  return os;
}

std::ostream& operator<<(std::ostream& os, const AttentionChoice& choice) {
  const bool takes_items = choice.route == AttentionRoute::kPrefillSm90;
  os << name_of(choice.route) << ": heads as " << choice.dim << ", " << choice.rows << " rows, "
     << choice.num_blocks << (takes_items ? " items" : " blocks");
  if (choice.cluster_size > 1) os << " in clusters of " << choice.cluster_size;
  if (choice.blocks_per_sm > 1) os << ", " << choice.blocks_per_sm << " side by side";
  if (choice.rotates) os << ", rotates";
  if (choice.reads_codes) os << ", codes";
  if (choice.route != AttentionRoute::kDecode) return os;
  os << ", " << choice.units_per_seq << " units";
  if (choice.shares_units) os << ", shared";
  if (choice.can_start_on_stale_table) os << ", stale start";
  if (choice.has_whole_tiles) os << ", whole tiles";
  return os;
}

}  // namespace heddle::cuda::attention
