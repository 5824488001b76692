#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "heddle/core/dtype.h"

#include "core/math.h"
#include "ops/attention/call/attention_args.h"
#include "ops/attention/paged/page_walk.h"
#include "ops/attention/paged/tree_masks.h"
#include "ops/attention/rope/rotary_angles.h"

namespace heddle::cpu::attention {

inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

/// Virtual lanes of the sum of a row's weights, and the unit in which keys are masked: as wide as
/// the widest target, so that the bits do not depend on the target.
inline constexpr int kKeyLanes = 16;

/// Keys are processed in tiles that begin at multiples of this position, so that what is summed
/// with what depends on the positions alone. A function of head_dim alone: the transposed tile of
/// keys has kKeyTileElements floats.
inline constexpr int kMaxTileKeys = 64;
inline constexpr int kKeyTileElements = 4096;
constexpr int tile_keys(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 32 : 16; }
static_assert(tile_keys(64) * 64 == kKeyTileElements && tile_keys(65) * 128 == kKeyTileElements &&
              tile_keys(129) * kMaxHeadDim == kKeyTileElements);

/// Floats between rows of the queries and sums that an item holds: whole vectors of every target.
constexpr int row_stride(int head_dim) { return round_up(head_dim, kKeyLanes); }

/// Rows (query token, query head of the group) that go through the tiles of keys together. They
/// share the transposition of a tile, which is worth 4 rows; their number decides the scratch, and
/// the bits do not depend on it.
inline constexpr int kRowBlock = 6;  // rows of one pass over a tile: 12 accumulators of two vectors
inline constexpr int kMaxItemRows = 60;
inline constexpr int kRowElements = 4096;
constexpr int item_rows(int head_dim) {
  const int fit = kRowElements / row_stride(head_dim) / kRowBlock * kRowBlock;
  return fit < kMaxItemRows ? fit : kMaxItemRows;
}
static_assert(item_rows(64) == 60 && item_rows(128) == 30 && item_rows(256) == 12);

/// The tree masks of a call: see AttentionOptions.
struct TreeMasks {
  const int32_t* words = nullptr;  // nullptr: no sequence has one
  IndexArray indptr;

  /// The masks of a sequence; nullptr where it has none.
  [[nodiscard]] const int32_t* of(int64_t seq) const {
    return words == nullptr || indptr[seq] == indptr[seq + 1] ? nullptr : words + indptr[seq];
  }
};

/// What one call computes, checked and unpacked.
struct AttentionParams {
  std::byte* o = nullptr;        // [num_tokens, num_q_heads, head_dim] of q_dtype
  const std::byte* q = nullptr;  // [num_tokens, num_q_heads, head_dim]
  float* lse = nullptr;          // [num_tokens, num_q_heads], or nullptr
  int64_t o_token = 0, o_head = 0, q_token = 0, q_head = 0, lse_token = 0,
          lse_head = 0;  // strides, elements
  DType q_dtype = DType::kFloat32, kv_dtype = DType::kFloat32;
  const PageWalk* cache = nullptr;
  int64_t value_distance = 0;        // bytes from a key to its value
  int64_t value_scale_distance = 0;  // floats from the scale of a key to that of its value
  int group_size = 1, head_dim = 0;
  int tile = 0, stride = 0;  // tile_keys(head_dim), row_stride(head_dim)
  float sm_scale = 1.0f, soft_cap = 0.0f;
  bool causal = true;
  int64_t window_left = -1;
  const RotaryAngles* angles = nullptr;  // nullptr: q and k come rotated
  TreeMasks trees;
};

/// A piece of the work: some rows of one sequence and kv head. Row r is query token r / group_size
/// of the sequence and query head kv_head * group_size + r % group_size.
struct AttentionItem {
  int64_t seq = 0, kv_head = 0;
  int64_t first_token = 0;  // row of q that holds the sequence's first query
  int64_t q_len = 0, kv_len = 0;
  int64_t first_row = 0;
  int num_rows = 0;               // at most item_rows(head_dim)
  const int32_t* tree = nullptr;  // [q_len, tree_mask_words(q_len)], or nullptr: causality decides
};

/// The numbering of the items of a call, without a table: those of sequence i are numbered from
/// first_item(i) on. Each sequence is given at least as many numbers as it has items; those left
/// over stand for nothing.
class AttentionItems {
 public:
  /// q_indptr nothing: one query per sequence.
  AttentionItems(const AttentionParams& params, int num_kv_heads, int64_t num_seqs,
                 std::optional<IndexArray> q_indptr);

  [[nodiscard]] int64_t count() const { return num_kv_heads_ * first_item(num_seqs_); }
  /// Item `number`; nothing where the number is left over.
  [[nodiscard]] std::optional<AttentionItem> get(int64_t number) const;

 private:
  [[nodiscard]] int64_t token(int64_t seq) const { return q_indptr_ ? (*q_indptr_)[seq] : seq; }
  [[nodiscard]] int64_t first_item(int64_t seq) const {
    return (token(seq) - token(0)) * group_size_ / rows_per_item_ + seq;
  }

  const PageWalk& cache_;
  TreeMasks trees_;
  int64_t group_size_, rows_per_item_, num_kv_heads_, num_seqs_;
  std::optional<IndexArray> q_indptr_;
};

void attend(const AttentionParams& params, const AttentionItem& item);

/// max + log(sum): the natural log of a sum of exponentials from the state of an online softmax.
float log_sum_exp(float max, float sum);

}  // namespace heddle::cpu::attention
