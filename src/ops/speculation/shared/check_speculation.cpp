#include "ops/speculation/shared/check_speculation.h"

#include <limits>

#include "cpu/validate_indices.h"

namespace heddle {
namespace {

// Far above any batch; keeps request * (1 + S) within 64 bits.
constexpr int64_t kMaxDrafts = std::numeric_limits<int32_t>::max() - 1;

void check_at_least(const char* tensor, const ConstTensorView& t, int axis, const Dim& extent) {
  HEDDLE_CHECK(t.size(axis) >= extent.value(), tensor, ".size(", axis, ") is ", t.size(axis),
               ", expected at least ", extent.name(), " = ", extent.value());
}

void check_rank(const char* tensor, const ConstTensorView& t, int rank) {
  HEDDLE_CHECK(t.rank() == rank, tensor, " has rank ", t.rank(), ", expected ", rank);
}

}  // namespace

void check_index_rows(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                      const Dim& rows) {
  check_rank(tensor, t, 1);
  check_at_least(tensor, t, 0, rows);
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{tensor, t}});
}

void check_index_table(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                       const Dim& rows, const Dim& columns) {
  check_rank(tensor, t, 2);
  check_at_least(tensor, t, 0, rows);
  check_at_least(tensor, t, 1, columns);
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{tensor, t}});
}

void check_mask_rows(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                     const Dim& rows) {
  check_rank(tensor, t, 1);
  check_at_least(tensor, t, 0, rows);
  check_dtype(tensor, t, {DType::kBool, DType::kUInt8});
  check_device(ctx, {{tensor, t}});
}

void check_drafts(const ExecContext& ctx, const Drafts& drafts, const Count& num_decode_requests) {
  HEDDLE_CHECK(num_decode_requests.given(), "num_decode_requests is not given");
  HEDDLE_CHECK(drafts.num_speculative_tokens >= 0 && drafts.num_speculative_tokens <= kMaxDrafts,
               "num_speculative_tokens is ", drafts.num_speculative_tokens, ", expected 0 to ",
               kMaxDrafts);
  if (!drafts.indptr) return;
  check_index_rows(ctx, "draft_indptr", drafts.indptr,
                   Dim("num_decode_requests + 1", num_decode_requests.value() + 1));
}

void check_requests(const ExecContext& ctx, const Count& num_decode, const Count& num_prefill,
                    const Drafts& drafts, int64_t rows, int64_t num_tokens) {
  check_count("num_decode_requests", ctx, num_decode, rows);
  check_count("num_prefill_requests", ctx, num_prefill, rows - num_decode.value());
  HEDDLE_CHECK(num_prefill.given(), "num_prefill_requests is not given");
  check_drafts(ctx, drafts, num_decode);
  const int64_t per_decode = drafts.indptr ? 1 : 1 + drafts.num_speculative_tokens;
  const int64_t needed = num_decode.value() * per_decode + num_prefill.value();
  HEDDLE_CHECK(num_tokens >= needed, "input_tokens has ", num_tokens, " tokens, the ",
               num_decode.value(), " decode and ", num_prefill.value(), " prefill requests have ",
               drafts.indptr ? "at least " : "", needed);
}

void validate_drafts(const Drafts& drafts, int64_t num_decode) {
  if (!drafts.indptr) return;
  HEDDLE_CHECK(num_decode < drafts.indptr.size(0), "num_decode_requests is ", num_decode,
               ", expected below draft_indptr.size(0) = ", drafts.indptr.size(0));
  const ConstTensorView starts = drafts.indptr.narrow(0, 0, num_decode + 1);
  cpu::check_indptr("draft_indptr", starts, std::numeric_limits<int64_t>::max(), "the last int64");
  const cpu::IndexArray start(starts);
  HEDDLE_CHECK(start[0] == 0, "draft_indptr[0] is ", start[0], ", expected 0");
  for (int64_t p = 0; p < num_decode; ++p) {
    const int64_t most = start[p] + drafts.num_speculative_tokens;
    HEDDLE_CHECK(start[p + 1] <= most, "draft_indptr[", p + 1, "] is ", start[p + 1],
                 ", expected at most draft_indptr[", p, "] + num_speculative_tokens = ", most);
  }
}

void validate_requests(const cpu::CountReader& num_decode, const cpu::CountReader& num_prefill,
                       const Drafts& drafts, int64_t num_tokens) {
  cpu::validate_count("num_decode_requests", num_decode, "the rows for requests");
  cpu::validate_count("num_prefill_requests", num_prefill, "the rows for requests");
  const int64_t decode = num_decode.read(), prefill = num_prefill.read();
  HEDDLE_CHECK(decode + prefill <= num_decode.limit(), "num_prefill_requests is ", prefill,
               ", with ", decode, " decode requests at most ", num_decode.limit() - decode,
               " rows are left");
  validate_drafts(drafts, decode);
  const int64_t num_drafts = drafts.indptr ? cpu::IndexArray(drafts.indptr)[decode]
                                           : decode * drafts.num_speculative_tokens;
  const int64_t needed = decode + num_drafts + prefill;
  HEDDLE_CHECK(num_tokens >= needed, "input_tokens has ", num_tokens, " tokens, the ", decode,
               " decode and ", prefill, " prefill requests have ", needed);
}

void check_rewind(const ExecContext& ctx, const ReleasedBlocks& released, const KvBlockState& state,
                  int64_t block_size_tokens, const Dim& rows) {
  HEDDLE_CHECK(block_size_tokens >= 1, "block_size_tokens is ", block_size_tokens,
               ", expected at least 1");
  check_index_rows(ctx, "last_kv_block_offset", state.last_kv_block_offset, rows);
  check_index_rows(ctx, "kv_length_offsets", state.kv_length_offsets, rows);
  check_index_rows(ctx, "kv_block_counts", state.kv_block_counts, rows);
  check_index_rows(ctx, "last_kv_block_id", state.last_kv_block_id, rows);
  check_index_table(ctx, "kv_block_ids", state.kv_block_ids, rows, Dim("max_blocks", 0));
  if (released.blocks_to_release) {
    check_index_rows(ctx, "blocks_to_release", released.blocks_to_release, rows);
  }
  if (released.remove_mask) check_mask_rows(ctx, "remove_mask", released.remove_mask, rows);
  if (released.released_ids) {
    check_index_rows(ctx, "released_ids", released.released_ids, Dim("capacity", 0));
  }
  if (released.num_released) {
    HEDDLE_CHECK(released.num_released.rank() <= 1 && released.num_released.num_elements() == 1,
                 "num_released has rank ", released.num_released.rank(), " and ",
                 released.num_released.num_elements(), " elements, expected one element");
    check_dtype("num_released", released.num_released, {DType::kInt32, DType::kInt64});
    check_device(ctx, {{"num_released", released.num_released}});
  }
}

}  // namespace heddle
