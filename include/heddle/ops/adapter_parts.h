#pragma once

#include <span>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/lora.h"

namespace heddle {

// What adapters have besides LoRA at linear layers: DoRA and lora_bias there, and rows of their own
// or LoRA at the embedding and the head. Everything is f32 but for the input of linear_at. Last
// axes are without gaps, rows of any stride. On the CPU and on CUDA, there asynchronous on
// ctx.stream and without a workspace; they allocate nothing and can be captured. A row's bits
// depend on its own values alone.

/// For every slice s, where entry [slot(t), s] of `affines` has a factor and maybe an offset
///   y[t] = factor * y[t] + (scale * pair_scale) * offset
/// with each product and the sum rounded; a product without offset is as it is. Other rows are not
/// touched. DoRA (arXiv 2402.09353) multiplies by its factor once the delta is added, a bias of
/// lora_B is an offset.
///   slices[s].y [num_tokens, out_features] f32
///   affines     entries of f32, kRankMajor: row 0 of a weight is the factor, row 1, where the rank
///               is 2, the offset
///   batch       slot_ids, or pairs, each of which is applied in its turn; without row_scale
/// A slot outside the table means: no adapter. One launch for each slice.
void apply_affines(const ExecContext& ctx, std::span<const LoraSlice> slices,
                   const LoraTable& affines, const LoraBatch& batch, float scale = 1.0f);

/// y[t] = own_rows[j] where token_ids[t] = own_ids[j]: rows that an adapter has for some tokens of
/// an embedding (PEFT's trainable_token_indices). Exact.
///   y         [num_tokens, width] f32
///   token_ids [num_tokens] i32
///   own_ids   [num_own] i32, ascending, each once
///   own_rows  [num_own, width] f32
void replace_rows(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
                  ConstTensorView own_ids, ConstTensorView own_rows);

/// y[t] = factor * (y[t] + sum_r (scale * a[token_ids[t]][r]) * b[r]), r ascending, each product
/// and each sum rounded: LoRA at an embedding, with a factor DoRA.
///   y         [num_tokens, width] f32
///   token_ids [num_tokens] i32; a row whose id is outside [0, vocab_size) is not touched
///   a         [vocab_size, rank] f32: PEFT's lora_embedding_A, transposed
///   b         [rank, width] f32: PEFT's lora_embedding_B, transposed
///   factor    [width] f32, or absent: 1
void add_low_rank_rows(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
                       ConstTensorView a, ConstTensorView b, ConstTensorView factor, float scale);

/// y[i] = y[i] / |x[i]|, the root of the sum of squares: DoRA's factor of a magnitude. All in
/// double, the sum on the CPU in ascending order, on CUDA in one order that the width determines;
/// rounded once. A row of zeros divides by zero: infinite, or NaN where y[i] is 0 too, as in PEFT.
///   y [num_rows] f32, without gaps; x [num_rows, width] f32
void divide_by_lengths(const ExecContext& ctx, TensorView y, ConstTensorView x);

/// y[t][own_ids[j]] = sum_k own_rows[j][k] * x[t][k]: what some outputs of a product are in place
/// of the weight's. Each product and each sum is rounded, on the CPU with k ascending, on CUDA in
/// one order that in_features determines.
///   y        [num_tokens, out_features] f32; other columns are not touched
///   x        [num_tokens, in_features] f32|f16|bf16
///   own_ids  [num_own] i32, each once; one outside [0, out_features) is left out
///   own_rows [num_own, in_features] f32
void linear_at(const ExecContext& ctx, TensorView y, ConstTensorView x, ConstTensorView own_ids,
               ConstTensorView own_rows);

}  // namespace heddle
