#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "heddle/ops/speculation.h"

#include "cpu/count_reader.h"
#include "cpu/index_array.h"
#include "ops/speculation/call/draft_layout.h"
#include "ops/speculation/call/mask_array.h"

namespace heddle {

/// The cache of one request.
struct KvRow {
  int64_t offset, length, count, last_id;
};
/// What a rewind makes of it. Int: i64, or i32 where no value comes near its ends.
template <class Int>
struct BasicKvRewind {
  Int rejected;      // tokens
  Int crossed;       // blocks that end with them
  Int offset;        // of the last token, afterwards
  Int left;          // blocks in use, afterwards
  Int num_released;  // ids for the list
};
using KvRewind = BasicKvRewind<int64_t>;

/// Of the blocks that are released after the last one, the first that the table has.
template <class Int>
[[nodiscard]] constexpr Int last_listed(Int count, Int max_blocks) {
  return count - 2 < max_blocks - 1 ? count - 2 : max_blocks - 1;
}
/// Divides, by quotient(a, b), only where a rewind crosses more than one block, or the offset was
/// wrong before.
template <class Int, class Quotient>
[[nodiscard]] constexpr BasicKvRewind<Int> plan_rewind(Int offset, Int count, Int rejected,
                                                       Int max_blocks, Int block_size,
                                                       const Quotient& quotient) {
  const Int missing = rejected - offset;
  Int crossed = missing > 0 ? 1 : 0;
  if (missing > block_size) crossed = quotient(missing + block_size - 1, block_size);
  Int moved = crossed * block_size - missing;
  if (moved >= block_size) moved -= quotient(moved, block_size) * block_size;
  if (crossed == 0) return {rejected, 0, moved, count, 0};
  const Int left = count > crossed ? count - crossed : 0;
  const Int listed = last_listed<Int>(count, max_blocks) - left + 1;
  return {rejected, crossed, moved, left, Int{count > 0} + (listed > 0 ? listed : 0)};
}

/// KvBlockState as kernels read and write it.
struct KvBlocks {
  cpu::MutableIndexArray last_offset;  // [rows]
  cpu::MutableIndexArray length;       // [rows]
  cpu::MutableIndexArray count;        // [rows]
  cpu::MutableIndexArray last_id;      // [rows]
  cpu::MutableIndexMatrix ids;         // [rows, max_blocks]
  int64_t max_blocks;
  int64_t block_size;

  KvBlocks(const KvBlockState& state, int64_t block_size_tokens)
      : last_offset(state.last_kv_block_offset),
        length(state.kv_length_offsets),
        count(state.kv_block_counts),
        last_id(state.last_kv_block_id),
        ids(state.kv_block_ids),
        max_blocks(state.kv_block_ids.size(1)),
        block_size(block_size_tokens) {}

  [[nodiscard]] constexpr KvRow load(int64_t i) const {
    return {last_offset[i], length[i], count[i], last_id[i]};
  }
  template <class Quotient = std::divides<>>
  [[nodiscard]] constexpr KvRewind plan(const KvRow& row, int64_t rejected,
                                        const Quotient& quotient = {}) const {
    return plan_rewind<int64_t>(row.offset, row.count, rejected, max_blocks, block_size, quotient);
  }
};

/// ReleasedBlocks as kernels write them.
struct Releases {
  cpu::MutableIndexArray last_ids;  // [num_last_ids]
  MutableMaskArray mask;            // [mask_size]
  cpu::MutableIndexArray list;      // [capacity]
  cpu::MutableIndexArray list_size;
  int64_t num_last_ids, mask_size, capacity;
  bool listed;  // whether the list or its size is given

  explicit Releases(const ReleasedBlocks& released)
      : last_ids(released.blocks_to_release),
        mask(released.remove_mask),
        list(released.released_ids),
        list_size(released.num_released),
        num_last_ids(released.blocks_to_release ? released.blocks_to_release.size(0) : 0),
        mask_size(released.remove_mask ? released.remove_mask.size(0) : 0),
        capacity(released.released_ids ? released.released_ids.size(0) : 0),
        listed(released.released_ids || released.num_released) {}

  constexpr void put(int64_t place, int64_t id) const {
    if (place < capacity) list.set(place, id);
  }
  /// What a row that is not active gets.
  constexpr void store_padding(int64_t i) const {
    if (i < num_last_ids) last_ids.set(i, 0);
    if (i < mask_size) mask.set(i, false);
  }
  /// What padding rows get, from `begin` to the end of the tensors.
  void clear_from(int64_t begin) const {
    for (int64_t i = begin; i < num_last_ids; ++i) last_ids.set(i, 0);
    mask.clear(begin, mask_size);
  }
};

/// Writes the cache of request i after its rewind, and its released ids to places [place, ...) of
/// the list.
constexpr void store_rewind(const KvBlocks& kv, const Releases& out, int64_t i, const KvRow& row,
                            const KvRewind& rewind, int64_t place) {
  if (rewind.offset != row.offset) kv.last_offset.set(i, rewind.offset);
  if (rewind.rejected != 0) kv.length.set(i, row.length - rewind.rejected);
  out.last_ids.set(i, row.last_id);
  out.mask.set(i, rewind.crossed > 0);
  if (rewind.crossed == 0) return;

  const cpu::MutableIndexArray ids = kv.ids.row(i);
  const int64_t last_entry = kv.max_blocks - 1, left = rewind.left;
  const int64_t new_last = left - 1 < last_entry ? left - 1 : last_entry;
  kv.count.set(i, left);
  kv.last_id.set(i, left > 0 && new_last >= 0 ? ids[new_last] : kNoBlock);
  if (row.count > 0) out.put(place++, row.last_id);
  for (int64_t b = last_listed<int64_t>(row.count, kv.max_blocks); b >= left; --b) {
    out.put(place++, ids[b]);
  }
  // Entry 0 is cleared even where no block was in use.
  const int64_t used = row.count > 1 ? row.count : 1;
  for (int64_t b = left; b < used && b <= last_entry; ++b) ids.set(b, kNoBlock);
  if (used > kv.max_blocks && last_entry >= 0) ids.set(last_entry, kNoBlock);
}

struct RewindParams {
  KvBlocks kv;
  Releases releases;
  cpu::IndexArray accepted_counts;  // [num_requests]
  cpu::IndexArray prefill_status;   // [num_requests]
  DraftLayout layout;
  cpu::CountReader num_active;
  int64_t num_requests;

  /// Requests, or rows of the releases if they are more.
  [[nodiscard]] int64_t num_rows() const {
    return std::max({num_requests, releases.num_last_ids, releases.mask_size});
  }
  /// Tokens that request i has to give back.
  [[nodiscard]] constexpr int64_t rejected(int64_t i) const {
    const int64_t status = prefill_status[i], accepted = accepted_counts[i];
    const int64_t drafts = layout.drafts(i);
    if (status == 1) return 0;
    return accepted < 0 ? drafts : accepted < drafts ? drafts - accepted : 0;
  }
};

namespace cpu::speculation {
void rewind_kv_cache(const ExecContext& ctx, const RewindParams& params);
}
namespace cuda::speculation {
void rewind_kv_cache(const ExecContext& ctx, const RewindParams& params);
}  // namespace cuda::speculation

}  // namespace heddle
