#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// How each row picks its token; every tensor is [num_rows] and on the context's device.
struct SamplingTable {
  ConstTensorView temperature;  // f32; 0: greedy
  ConstTensorView top_k;        // i32; <= 0: all
  ConstTensorView top_p;        // f32; >= 1: all
  ConstTensorView min_p;        // f32; <= 0: all
  ConstTensorView seed;         // i64
  ConstTensorView step;  // i64: tokens drawn before by this request; seed and step fix the draw
};

/// Picks one token per row of logits.
///   token_ids [num_rows] i32|i64; logprobs [num_rows] f32 or absent; logits [num_rows, vocab_size]
///   f32
/// Greedy: the largest logit, the lowest id among equals. Else p = softmax(logits / temperature),
/// then in this order:
///   top_k  keeps the k largest (equal logits: lower ids first);
///   top_p  keeps the shortest run of the largest, p descending, whose sum reaches top_p (of what
///     top_k left, renormalised);
///   min_p  keeps those with p >= min_p * max p;
/// and of what is left one is drawn with u = philox4x32-10(seed, step) in [0, 1): the first token
/// in that same order whose running sum exceeds u times the total. logprobs is the natural log of
/// the chosen token's softmax(logits), without temperature and filters, f32. A row depends on its
/// own logits and parameters alone. NaN logits count as -inf; a row of nothing else gives token 0.
/// With HEDDLE_VALIDATE=1 a temperature that is negative or not finite, a top_p that is not above
/// 0, a min_p that is not at most 1, and a negative step are errors.
/// Needs sample_workspace_bytes of workspace unless every row is greedy. top_p: Holtzman et al.
/// 2019, arXiv 1904.09751; min_p:
/// Nguyen et al. 2024, arXiv 2407.01082; philox: Salmon et al. 2011.
void sample(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits, const SamplingTable& table);

/// token_ids[t] = argmax(logits[t]), as sample with temperature 0.
void greedy(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits);

/// Throws kInvalidArgument for extents below 0 or above 2^40.
[[nodiscard]] size_t sample_workspace_bytes(int64_t num_rows, int64_t vocab_size);

}  // namespace heddle
