#pragma once

#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"
#include "heddle/ops/lora_table.h"

#include "cpu/index_array.h"

namespace heddle {

/// One slice of apply_affines.
struct AffineSlice {
  float* y;  // [num_tokens, width]
  int64_t y_stride, width, num_tokens;
  const LoraWeight* entries;  // of slot 0; those of a slot are num_slices apart
  int64_t num_slots, num_slices;
  cpu::IndexArray slots;   // [num_tokens], or of all pairs
  cpu::IndexArray starts;  // [num_tokens + 1]; without data: an id for each row
  const float* pair_scales;
  int64_t num_pairs, max_pairs;
  float scale;
};

/// Rows of y and their tokens.
struct TokenRows {
  float* y;  // [num_tokens, width]
  int64_t y_stride, width, num_tokens;
  const int32_t* token_ids;
};

/// Rows with an id each, ascending where rows are looked for.
struct OwnRows {
  const int32_t* ids;  // [count]
  const float* rows;   // [count, width]
  int64_t stride, count;
};

struct LowRankRows {
  const float* a;       // [vocab_size, rank]
  const float* b;       // [rank, width]
  const float* factor;  // [width], or null
  int64_t a_stride, b_stride, vocab_size, rank;
  float scale;
};

/// What divide_by_lengths takes.
struct RowLengths {
  float* y;        // [num_rows]
  const float* x;  // [num_rows, width]
  int64_t x_stride, num_rows, width;
};

/// The product of linear_at.
struct OwnProducts {
  float* y;  // [num_tokens, out_features]
  const std::byte* x;
  int64_t y_stride, x_stride, num_tokens, in_features, out_features;
};

namespace cuda::adapter_parts {

void apply_affines(const ExecContext& ctx, const AffineSlice& slice);
void replace_rows(const ExecContext& ctx, const TokenRows& rows, const OwnRows& own);
void add_low_rank_rows(const ExecContext& ctx, const TokenRows& rows, const LowRankRows& pair);
void divide_by_lengths(const ExecContext& ctx, const RowLengths& rows);
void linear_at(const ExecContext& ctx, const OwnProducts& products, const OwnRows& own,
               DType x_dtype);

}  // namespace cuda::adapter_parts
}  // namespace heddle
