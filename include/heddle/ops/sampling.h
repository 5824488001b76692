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
/// by id with which the running sum exceeds u times the total. logprobs is the natural log of
/// the chosen token's softmax(logits), without temperature and filters, f32. A row depends on its
/// own logits and parameters alone; CPU and GPU give the same bits (docs/ops/sampling.md has the
/// rounding points). NaN logits count as -inf; a row of nothing else gives token 0.
/// With HEDDLE_VALIDATE=1 a temperature that is negative or not finite, a top_p that is not above
/// 0, a min_p that is not at most 1, and a negative step are errors.
/// On the CPU it needs sample_workspace_bytes of workspace unless every row is greedy; on CUDA
/// none. There it is one launch on the context's stream, which may be captured. top_p: Holtzman et
/// al. 2019, arXiv 1904.09751; min_p: Nguyen et al. 2024, arXiv 2407.01082; philox: Salmon et al.
/// 2011.
void sample(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits, const SamplingTable& table);

/// token_ids[t] = argmax(logits[t]), as sample with temperature 0.
void greedy(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits);

/// Log-probabilities of given tokens, and the most likely ones.
///   logprobs [num_rows] f32; top_ids [num_rows, k] i32 and top_logprobs [num_rows, k] f32, both or
///   neither; logits [num_rows, vocab_size] f32; token_ids [num_rows] i32|i64
/// logprobs[t] = log softmax(logits[t])[token_ids[t]], the very bits that sample gives for a token;
/// NaN for an id out of range. top_ids[t] are the k tokens of the largest logits, 1 <= k <=
/// vocab_size, in sample's order of choice: larger ones first, equal ones by id. A row depends on
/// its own logits alone; CPU and GPU give the same bits. NaN logits count as -inf; in a row of
/// nothing else all logprobs are -inf. On CUDA one launch on the context's stream; k above
/// 64 takes several passes over a row.
void token_logprobs(const ExecContext& ctx, TensorView logprobs, TensorView top_ids,
                    TensorView top_logprobs, ConstTensorView logits, ConstTensorView token_ids);

/// For the CPU; a context on CUDA needs none. Throws kInvalidArgument for extents below 0 or above
/// 2^40.
[[nodiscard]] size_t sample_workspace_bytes(int64_t num_rows, int64_t vocab_size);

/// What `adjust_logits` changes, as flat arrays without gaps on the context's device: row r has the
/// entries [indptr[r], indptr[r + 1]), one for each token that something is asked of, by ascending
/// id. A row that asks nothing has none and costs nothing.
struct LogitAdjustments {
  ConstTensorView indptr{};         // [num_rows + 1] i32
  ConstTensorView token_ids{};      // [num_entries] i32; those out of range are left out
  ConstTensorView prompt_counts{};  // [num_entries] i32: how often it is in the prompt
  ConstTensorView output_counts{};  // [num_entries] i32: how often it is in the answer so far
  ConstTensorView bias{};           // [num_entries] f32; -infinity: the token is not drawn
  ConstTensorView repetition{};     // [num_rows] f32; 1: off
  ConstTensorView presence{};       // [num_rows] f32; 0: off
  ConstTensorView frequency{};      // [num_rows] f32; 0: off
};

/// Changes the logits of the entries' tokens, before tokens are picked.
///   logits [num_rows, vocab_size] f32, in place; saved [num_entries] f32 or absent: the logits of
///   before
/// For each entry, in this order and in f64, rounded to f32 once:
///   x = logit + bias;
///   x = x > 0 ? x / repetition : x * repetition, where prompt_counts + output_counts > 0;
///   x = x - frequency * output_counts;
///   x = x - presence, where output_counts > 0.
/// So repetition looks at prompt and answer, as RepetitionPenaltyLogitsProcessor of transformers
/// does (Keskar et al. 2019, arXiv 1909.05858), frequency and presence at the answer alone, as
/// vLLM's apply_penalties and OpenAI's API. The order is that of vLLM's sampler: bias and what is
/// forbidden, then the penalties. All other logits keep their bits. A row depends on its own logits
/// and entries alone; CPU and GPU give the same bits.
/// With HEDDLE_VALIDATE=1 an indptr that does not ascend or passes num_entries, ids of a row that
/// do not ascend, negative counts, a bias that is NaN, a repetition that is not finite or not above
/// 0, and a presence or frequency that is not finite are errors.
void adjust_logits(const ExecContext& ctx, TensorView logits, TensorView saved,
                   const LogitAdjustments& adjustments);

/// Puts the saved logits back: after adjust_logits(logits, saved, a) all logits have their bits
/// again. Of the adjustments indptr and token_ids are read.
void restore_logits(const ExecContext& ctx, TensorView logits, ConstTensorView saved,
                    const LogitAdjustments& adjustments);

/// The logits of the tokens that may be drawn; -infinity for all others.
///   masked, logits [num_rows, vocab_size] f32, the same tensor or apart in memory; indices
///   [num_rows] i32; masks [num_masks, num_words] i32, num_words = ceil(vocab_size / 32)
/// masked[r][t] = logits[r][t] where bit t % 32 of masks[indices[r]][t / 32] is set, else
/// -infinity. A row whose index is not in [0, num_masks) is copied. A row depends on its own logits
/// and mask alone; CPU and GPU give the same bits. Grammars write such masks (XGrammar: Dong et al.
/// 2024, arXiv 2411.15100). On CUDA one launch on the context's stream, which may be captured.
void mask_logits(const ExecContext& ctx, TensorView masked, ConstTensorView logits,
                 ConstTensorView indices, ConstTensorView masks);

/// token_ids[t] = drawn[sources[t]] where sources[t] is in [0, num_drawn); other tokens stay. So a
/// step can be launched before the host knows the tokens of the previous one.
///   token_ids, sources [num_tokens] i32; drawn [num_drawn] i32; without gaps, apart in memory
/// On CUDA one launch on the context's stream, which may be captured.
void take_drawn_tokens(const ExecContext& ctx, TensorView token_ids, ConstTensorView drawn,
                       ConstTensorView sources);

}  // namespace heddle
