#pragma once

#include <cstdint>
#include <span>

#include "heddle/ops/speculation.h"

#include "core/math.h"
#include "cpu/count_reader.h"
#include "cpu/index_array.h"
#include "ops/speculation/shared/draft_layout.h"
#include "ops/speculation/shared/mask_array.h"

namespace heddle {

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

  /// Blocks that end when the last `rejected` tokens of a request go whose last one lies at
  /// `offset` of its block.
  [[nodiscard]] int64_t blocks_crossed(int64_t offset, int64_t rejected) const {
    return offset < rejected ? ceil_div(rejected - offset, block_size) : 0;
  }
};

/// ReleasedBlocks as kernels write them.
struct Releases {
  cpu::MutableIndexArray last_ids;  // [num_last_ids]
  MutableMaskArray mask;            // [mask_size]
  cpu::MutableIndexArray list;      // [capacity]
  cpu::MutableIndexArray list_size;
  int64_t num_last_ids, mask_size, capacity;
  bool listed;  // whether the list or its size is asked for

  explicit Releases(const ReleasedBlocks& released)
      : last_ids(released.blocks_to_release),
        mask(released.remove_mask),
        list(released.released_ids),
        list_size(released.num_released),
        num_last_ids(released.blocks_to_release ? released.blocks_to_release.size(0) : 0),
        mask_size(released.remove_mask ? released.remove_mask.size(0) : 0),
        capacity(released.released_ids ? released.released_ids.size(0) : 0),
        listed(released.released_ids || released.num_released) {}

  void put(int64_t place, int64_t id) const {
    if (place < capacity) list.set(place, id);
  }
  /// What padding rows get, from `begin` to the end of the tensors.
  void clear_from(int64_t begin) const {
    for (int64_t i = begin; i < num_last_ids; ++i) last_ids.set(i, 0);
    mask.clear(begin, mask_size);
  }
};

/// Takes the last `rejected` tokens of request i off its cache. The ids that it releases go to
/// places [place, ...) of the list; returns the place behind them.
inline int64_t rewind_request(const KvBlocks& kv, const Releases& out, int64_t i, int64_t rejected,
                              int64_t place) {
  const int64_t offset = kv.last_offset[i], last_id = kv.last_id[i];
  const int64_t crossed = kv.blocks_crossed(offset, rejected);
  // Modulo the block size; only an offset that was wrong before takes a division.
  const int64_t moved = offset - rejected + crossed * kv.block_size;
  kv.last_offset.set(i, moved < kv.block_size ? moved : moved % kv.block_size);
  kv.length.set(i, kv.length[i] - rejected);
  out.last_ids.set(i, last_id);
  out.mask.set(i, crossed > 0);
  if (crossed == 0) return place;

  const cpu::MutableIndexArray ids = kv.ids.row(i);
  const int64_t count = kv.count[i], left = count > crossed ? count - crossed : 0;
  const int64_t last_entry = kv.max_blocks - 1;
  const int64_t new_last = left - 1 < last_entry ? left - 1 : last_entry;
  kv.count.set(i, left);
  kv.last_id.set(i, left > 0 && new_last >= 0 ? ids[new_last] : kNoBlock);
  if (count > 0) out.put(place++, last_id);
  for (int64_t b = count - 2 < last_entry ? count - 2 : last_entry; b >= left; --b) {
    out.put(place++, ids[b]);
  }
  const int64_t used = count > 1 ? count : 1;  // entry 0 is cleared even where no block was in use
  for (int64_t b = left; b < used && b <= last_entry; ++b) ids.set(b, kNoBlock);
  if (used > kv.max_blocks && last_entry >= 0) ids.set(last_entry, kNoBlock);
  return place;
}

struct RewindParams {
  KvBlocks kv;
  Releases releases;
  cpu::IndexArray accepted_counts;  // [num_requests]
  cpu::IndexArray prefill_status;   // [num_requests]
  DraftLayout layout;
  cpu::CountReader num_active;
  int64_t num_requests;

  /// Tokens that request i has to give back.
  [[nodiscard]] int64_t rejected(int64_t i) const {
    if (prefill_status[i] == 1) return 0;
    const int64_t drafts = layout.drafts(i), accepted = accepted_counts[i];
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
