#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/lora.h"

namespace heddle {

/// How the rows of a call are computed. Part of the call and never derived from the number of rows,
/// so that a row has the same bits in any batch.
enum class LinearPath : uint8_t {
  kDecode,  // few rows: dense weights are streamed once for 128 of them, packed ones for 32
  kPrompt,  // many rows: a tiled product
};

/// One of the products of a linear site, which share x: q, k and v, or gate and up.
struct LinearSlice {
  /// [num_tokens, out_features] of x's dtype or f32, last axis without gaps; a column range of a
  /// fused product is a view of it.
  TensorView y;
  /// [out_features, in_features] of x's dtype, as checkpoints have it; last axis without gaps.
  ConstTensorView weight{};
  ConstTensorView bias{};  // [out_features] of x's dtype, without gaps; absent: none
  /// Quantised blocks (linear.h) in place of `weight`; data on the context's device.
  PackedWeight packed{};
};

/// The adapters of a site: tables, batch and plan as lora_apply takes them, with one slice of the
/// tables for each slice of the site.
struct LinearAdapters {
  LoraTable a, b;
  LoraBatch batch;
};

/// A linear site of a model with weights in f16, bf16 or quantised blocks, and the adapters of its
/// rows inside. For every slice s
///   y[t] = T(W x[t] + bias + row_scale[t] * B.scale * B A x[t])
///   x [num_tokens, in_features] f16|bf16, last axis without gaps; at most 65536 rows on CUDA
/// with sums in f32, and one rounding to y's dtype. Rows without an adapter have no last term. All
/// slices' y have one dtype, and none overlaps x.
///
/// The product is one sum in f32 whose order depends on the path, on in_features and on the sum of
/// out_features alone, the bias is added to it in f32, and the adapters' sums are those of
/// lora_apply: y has the bits of the product in f32, of lora_apply to it, and of a rounding. So a
/// row's bits depend on its own x and adapters, and neither on the other rows nor on which
/// adapters are loaded. Between devices the bits differ, and on CUDA between the paths.
///
/// Packed weights: W is the exact value of the stored weight, and slices may be packed or dense in
/// one call. On CUDA codes q are multiplied exactly and scaled in f32, for each 32 features k of a
/// row (Q6_K: 16)
///   sum += (d s) sum_k q_k x_k + m sum_k x_k        m of the formats with a minimum
/// in one order that the shapes and formats of the slices determine; kPrompt rounds W to x's dtype
/// instead, once.
///
/// On CUDA of compute capability 9.0, where weights are dense, A is kRankMajor, B kRankMinor, both
/// tables are entries with is_aligned, and W begins at 16 bytes with rows multiples of 16 bytes
/// apart:
///   kDecode  one launch for up to 128 rows without adapters, two with them, the second of which
///            overlaps the first where the context has exchange memory
///   kPrompt  one launch for all rows without adapters; with them three for each four slices,
///            where the plan groups all rows
/// Packed weights of up to four slices with adapters take A x, the products and B h in launches of
/// their own with kDecode, for up to 128 rows. With kPrompt A x of four slices takes two launches,
/// and each 32 MB of rounded weights three: the rounding, an empty kernel, the products with B h.
/// Other calls have the same bits in more launches.
///
/// W is read before the kernels in front have ended: what writes it must have ended, or be followed
/// on the stream by a copy, an event or a kernel that is launched without programmatic
/// serialization. x, y, bias, tables and adapters are ordered as usual. Needs
/// linear_site_workspace_bytes of workspace. Allocates nothing on the device, waits for nothing,
/// and can be captured. Errors of batch, plan and tables are those of lora_apply.
/// LoRA: Hu et al. 2021, arXiv 2106.09685.
void linear_site(const ExecContext& ctx, std::span<const LinearSlice> slices, ConstTensorView x,
                 LinearPath path, const LinearAdapters* adapters = nullptr);

/// `linear` of the outputs, at most 16, and lora_apply to them: the same bits, on the CPU. Up to
/// 256 rows, where the batch has no pairs, are one parallel section, in which the adapters' weights
/// come from memory while the products run. Needs the workspace of lora_apply, or with pairs
/// lora_pairs_workspace_bytes, and that of linear; errors are of both. Adapters take x in f32.
/// Adds to adapter_seconds, where given, the time that they took: that of all threads, by their
/// number.
void linear_with_adapters(const ExecContext& ctx, std::span<const LinearOutput> outputs,
                          ConstTensorView x, const LinearAdapters& adapters,
                          double* adapter_seconds = nullptr,
                          LinearActivations activations = LinearActivations::kFloat32);

/// Upper bound for calls of linear_site of up to num_tokens rows. out_features: of all slices
/// together; max_rank: of the tables, 0 without adapters; max_pairs as in the batch, 0 where it has
/// none.
[[nodiscard]] size_t linear_site_workspace_bytes(Device device, int64_t num_tokens,
                                                 int64_t in_features, int64_t out_features,
                                                 int num_slices, int max_rank,
                                                 int64_t max_pairs = 0);

}  // namespace heddle
