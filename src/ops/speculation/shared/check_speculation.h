#pragma once

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/count.h"
#include "heddle/ops/speculation.h"

#include "core/check_kernels.h"
#include "cpu/count_reader.h"

namespace heddle {

// Checks that the ops of this family share. Extents are lower bounds: buffers are made once, for
// the largest batch.

/// [>= rows] i32|i64.
void check_index_rows(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                      const Dim& rows);
/// [>= rows, >= columns] i32|i64.
void check_index_table(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                       const Dim& rows, const Dim& columns);
/// [>= rows] bool|u8.
void check_mask_rows(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                     const Dim& rows);

/// A tensor of tokens, [n] or [1, n], as [n].
template <class Byte>
[[nodiscard]] BasicTensorView<Byte> token_row(const char* tensor, const BasicTensorView<Byte>& t) {
  HEDDLE_CHECK(t.rank() == 1 || (t.rank() == 2 && t.size(0) == 1), tensor, " has rank ", t.rank(),
               ", expected [num_tokens] or [1, num_tokens]");
  return {t.raw(), t.dtype(), t.device(), t.shape().last(1), t.strides().last(1)};
}

void check_drafts(const ExecContext& ctx, const Drafts& drafts, const Count& num_decode_requests);

/// That num_decode + num_prefill requests fit in `rows`, and, where the host knows them, their
/// tokens in num_tokens.
void check_requests(const ExecContext& ctx, const Count& num_decode, const Count& num_prefill,
                    const Drafts& drafts, int64_t rows, int64_t num_tokens);

/// For HEDDLE_VALIDATE: check_requests() with counts on the device, and ragged starts.
void validate_requests(const cpu::CountReader& num_decode, const cpu::CountReader& num_prefill,
                       const Drafts& drafts, int64_t num_tokens);
/// The starts of num_decode requests, where drafts are ragged.
void validate_drafts(const Drafts& drafts, int64_t num_decode);

/// The same in host memory, as check_on_host brings it there.
template <class Host>
[[nodiscard]] Drafts drafts_on_host(Host& host, const Drafts& drafts) {
  return {drafts.num_speculative_tokens, host(drafts.indptr), drafts.reject_placeholders};
}
template <class Host>
[[nodiscard]] KvBlockState state_on_host(Host& host, const KvBlockState& state) {
  return {host(state.last_kv_block_offset), host(state.kv_length_offsets),
          host(state.kv_block_counts), host(state.last_kv_block_id), host(state.kv_block_ids)};
}

/// The state of `rows` requests and what a rewind of it gives.
void check_rewind(const ExecContext& ctx, const ReleasedBlocks& released, const KvBlockState& state,
                  int64_t block_size_tokens, const Dim& rows);

}  // namespace heddle
