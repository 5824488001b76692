#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"

namespace heddle::cuda::attention {

/// A call of batch_decode or batch_prefill on a GPU, described: all that decides which kernel runs
/// it, and how.
struct AttentionCall {
  bool is_decode = true;
  int64_t num_tokens = 0;  // rows of q
  int64_t num_seqs = 0;
  int64_t table_keys = 0;  // that the page table has room for, of all sequences together
  int page_size = 1, num_kv_heads = 1, group_size = 1, head_dim = 0;
  int64_t num_bundles = 0;         // of decode: 0: each query alone
  int max_bundle = 1;              // queries of one
  bool has_pool = true;            // entries of the table are pages of a pool, not addresses
  bool is_q_aligned = true;        // rows of q and o are whole vectors of 16 bytes
  bool is_kv_aligned = true;       // keys and values are, too
  bool has_codes = false;          // the cache is f8e4m3
  bool rotates = false;            // RoPE inside
  bool transforms_scores = false;  // a soft cap, or a scale that is not positive
  bool has_tree_masks = false;
  bool has_scratch = true;  // the workspace has room for partial_floats(), the context has counters
};

enum class AttentionRoute {
  kDecode,
  kPrefill,         // causality, windows, aligned rows
  kPrefillSm90,     // the same, for compute capability 9.0 and heads up to 128
  kGeneralPrefill,  // also RoPE inside, soft caps, any scale, tree masks and any rows
};

/// Which kernel runs a call. Of kDecode alone what is said to be so, else the defaults.
struct AttentionChoice {
  AttentionRoute route = AttentionRoute::kDecode;
  bool rotates = false;
  bool reads_codes = false;  // instances for f8e4m3
  int dim = 64;              // elements that heads are taken as: 64, 128 or 256
  int rows = 8;              // of q in a block at a time
  int64_t num_blocks =
      0;  // prefill: at most, since how many have work is known on the device alone; of
          // kPrefillSm90 the items that blocks take

  // Of kDecode.
  int units_per_seq = 0;  // kv heads, times the parts that a group is taken in
  int blocks_per_sm = 1;  // that take neighbouring parts of the work
  int cluster_size = 1;   // blocks that share a unit through their shared memory
  /// Several blocks may share a unit, through the workspace.
  bool shares_units = false;
  /// Blocks may begin by lengths and a page table that the kernel in front may still write
  /// (decode/schedule_cuda.h): pages are those of a pool, each sequence has a thread, and costs fit
  /// into 32 bits even if each sequence had the whole table.
  bool can_start_on_stale_table = false;
  /// Every tile lies within a page, and rows are aligned.
  bool has_whole_tiles = false;

  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

[[nodiscard]] AttentionChoice select_attention_kernel(const AttentionCall& call,
                                                      const DeviceInfo& info);

/// Floats that blocks of decode leave for each other: groups of 4,
/// [block][segment][row tile][dim / 16 + 1][8][row pairs].
[[nodiscard]] size_t partial_floats(const AttentionCall& call, int num_sms);
/// At least that many for any number of kv heads, and any bundles.
[[nodiscard]] size_t max_partial_floats(int64_t num_seqs, int64_t num_q_heads, int head_dim,
                                        int num_sms);

std::ostream& operator<<(std::ostream& os, const AttentionCall& call);
std::ostream& operator<<(std::ostream& os, const AttentionChoice& choice);

}  // namespace heddle::cuda::attention
