#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// Formats of a stored weight. The block formats are those of GGUF: a row is a chain of blocks of
/// 32 (256 from kQ4K on) consecutive weights that share their scales.
enum class WeightType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
};
/// "F32", "Q4_1", "Q4_K" and so on.
[[nodiscard]] const char* name(WeightType type);
inline std::ostream& operator<<(std::ostream& os, WeightType type) { return os << name(type); }

/// Weights of one block, 1 for the dense types; in_features must be a multiple of it.
[[nodiscard]] int block_size(WeightType type);
/// Bytes of `num_weights` consecutive weights of a row as a file holds them. Like packed_bytes it
/// throws kInvalidArgument where the bytes are above 2^63 - 1.
[[nodiscard]] size_t stored_bytes(WeightType type, int64_t num_weights);

/// out[i] = f32 value of weight i of a stored row (or of several rows, one after the other), exact
/// to the format's definition. stored.size() must be stored_bytes(type, out.size()).
void dequantize(std::span<float> out, WeightType type, std::span<const std::byte> stored);

/// Whether `quantize` makes the type: all but the formats with blocks of 256.
[[nodiscard]] bool can_quantize(WeightType type);
/// The inverse of dequantize, with the bytes that ggml's plain quantisation gives. F16 and BF16
/// round to nearest, ties to even. Of a block x of 32, d and m in f32, stored as f16:
///   Q8_0        d = max |x| / 127                                 q = round(x / d)
///   Q4_0, Q5_0  d = x_j / -8 or -16, x_j the first of largest |x|   q = trunc(x / d + 8.5 or 16.5)
///   Q4_1, Q5_1  m = min x, d = (max x - m) / 15 or 31             q = trunc((x - m) / d + 0.5)
/// where 1 / d is rounded before the product, and is 0 where d is 0 or 1 / d is infinite; halves
/// round away from zero, and q is at most the largest code. Throws where a value is not finite, or
/// it, a d or an m would not be in the type; kUnsupported where can_quantize is false.
void quantize(const ExecContext& ctx, std::span<std::byte> stored, WeightType type,
              std::span<const float> values);

/// A weight [out_features, in_features] repacked for the product: 16 outputs side by side, so that
/// lanes are outputs and no sum crosses lanes. Non-owning; the layout is private to this library
/// and the same on every machine. data may be memory of a GPU, where linear_site (linear_site.h)
/// and embedding take it.
struct PackedWeight {
  WeightType type = WeightType::kF32;
  int64_t out_features = 0, in_features = 0;
  const std::byte* data = nullptr;  // packed_bytes(...) bytes, 64-byte aligned
};

/// At most 3 % above the stored size but for the last group of fewer than 16 outputs.
[[nodiscard]] size_t packed_bytes(WeightType type, int64_t out_features, int64_t in_features);

/// Repacks the stored rows [first_row, first_row + num_rows) of a weight; first_row must be a
/// multiple of 16, and so must num_rows but for the last rows. packed: the whole of the weight's
/// packed bytes. Rows can so be packed piece by piece, and the file's pages given back in between.
void pack_rows(const ExecContext& ctx, std::span<std::byte> packed, WeightType type,
               int64_t out_features, int64_t in_features, int64_t first_row, int64_t num_rows,
               std::span<const std::byte> stored);

/// In what a product takes x.
enum class LinearActivations : uint8_t {
  kFloat32,
  /// Where the weight is in a block format, x rounded to 8 bits, for each row and block of 32:
  /// d = max |x| / 127 and q = round(x (1 / d)), halves to even, all in f32; where d is below
  /// 2^-126, zeros; where an x is not finite, d is NaN. With S = sum_k c_k q_k of the block (of
  /// Q6_K, of 16 weights), exact, c_k the weight's code less its offset, block by block from zero
  ///   y = fma(f32(S) d, the weights' scale, y)
  ///   y = fma(the weights' minimum, d sum_k q_k, y)     of formats with a minimum
  /// the bits of which depend on no instruction set that has a fused multiply-add. Dense weights
  /// take x in f32.
  kInt8,
};

/// y[t][o] = sum_k W[o][k] x[t][k], k ascending, one fused multiply-add each, from zero
///   y [num_tokens, out_features] f32; x [num_tokens, in_features] f32; last axes without gaps,
///   rows of any stride
/// W[o][k] is the exact f32 value of the stored weight, so y has the bits of that loop over the
/// dequantised matrix, for any number of rows and threads and on every instruction set that has a
/// fused multiply-add (on one without, the product is rounded before the sum). Allocates nothing.
/// Other activations than f32 need linear_workspace_bytes of workspace.
void linear(const ExecContext& ctx, TensorView y, ConstTensorView x, const PackedWeight& weight,
            LinearActivations activations = LinearActivations::kFloat32);
/// Of a call with up to num_tokens rows.
[[nodiscard]] size_t linear_workspace_bytes(int64_t num_tokens, int64_t in_features,
                                            LinearActivations activations);

/// One product of several that share x, with a bias: y[t][o] = f32(sum of linear + bias[o]).
struct LinearOutput {
  TensorView y;  // [num_tokens, out_features of its weight]
  PackedWeight weight;
  ConstTensorView bias{};  // [out_features of its weight] f32, without gaps; absent: none
};
/// linear for each output, in one parallel section: the same bits as one call after the other. A
/// bias is added to the finished sum, in one rounding; it must not overlap y.
void linear(const ExecContext& ctx, std::span<const LinearOutput> outputs, ConstTensorView x,
            LinearActivations activations = LinearActivations::kFloat32);

/// y[t] = T(row token_ids[t] of the weight), exact in f32, rounded once to f16 or bf16
///   y [num_tokens, in_features] f32|f16|bf16; ids i32|i64
/// An id outside [0, out_features) gives zeros, a fault on CUDA, and is an error with
/// HEDDLE_VALIDATE=1. The embedding of a model whose table also serves as its output head. The same
/// bits on CPU and CUDA.
void embedding(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
               const PackedWeight& weight);

}  // namespace heddle
