#pragma once

#include "heddle/core/error.h"

#include "ops/speculation/call/rewind_kv_cache_kernels.h"

namespace heddle {

/// For HEDDLE_VALIDATE: the cache of request i can give `rejected` tokens back.
inline void validate_blocks(const KvBlocks& kv, int64_t i, int64_t rejected) {
  const int64_t count = kv.count[i], offset = kv.last_offset[i];
  HEDDLE_CHECK(count >= 0 && count <= kv.max_blocks, "kv_block_counts[", i, "] is ", count,
               ", expected 0 to max_blocks = ", kv.max_blocks);
  HEDDLE_CHECK(count == 0 || (offset >= 0 && offset < kv.block_size), "last_kv_block_offset[", i,
               "] is ", offset, ", expected 0 to below block_size_tokens = ", kv.block_size);
  const int64_t crossed = kv.plan(kv.load(i), rejected).crossed;
  HEDDLE_CHECK(crossed <= count, "kv_block_counts[", i, "] is ", count, ", a rewind of ", rejected,
               " tokens releases ", crossed);
}

}  // namespace heddle
