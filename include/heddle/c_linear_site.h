#ifndef HEDDLE_C_LINEAR_SITE_H_
#define HEDDLE_C_LINEAR_SITE_H_

/* Linear sites with their adapters, heddle/ops/linear_site.h, in C. Part of the same library as
 * heddle/c_api.h, with its conventions. */

#include "heddle/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rows of a call are computed; part of the call, so that a row has its bits in any batch.
 */
typedef int32_t heddle_linear_path;
enum {
  HEDDLE_LINEAR_DECODE = 0, /* few rows: weights are streamed once for 128 (packed: 32) of them */
  HEDDLE_LINEAR_PROMPT = 1  /* many rows: a tiled product */
};

/* One of the products that share x. */
typedef struct heddle_linear_slice {
  DLTensor* y;            /* [num_tokens, out_features] of x's dtype or f32 */
  const DLTensor* weight; /* [out_features, in_features] of x's dtype */
  const DLTensor* bias;   /* [out_features] of x's dtype, may be NULL */
  /* Quantised blocks in place of weight, which is NULL then, on the context's device; else NULL. */
  const heddle_packed_weight* packed;
} heddle_linear_slice;

/* y[t] = W x[t] + bias + row_scale[t] * B.scale * B A x[t] for every slice;   x [num_tokens,
 * in_features] f16 or bf16. Sums are f32, and y is rounded once. a, b and batch are those of
 * heddle_lora_apply, with a slice of the tables for each slice, or all three NULL: no adapters.
 * Needs heddle_linear_site_workspace_bytes. */
heddle_status heddle_linear_site(heddle_context* context, const heddle_linear_slice* slices,
                                 int32_t num_slices, const DLTensor* x, heddle_linear_path path,
                                 const heddle_lora_table* a, const heddle_lora_table* b,
                                 const heddle_lora_batch* batch);
/* For up to num_tokens rows. out_features: of all slices together; max_rank: of the tables, 0
 * without adapters; max_pairs as in the batch, 0 where it has none. */
size_t heddle_linear_site_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                          int64_t out_features, int32_t num_slices,
                                          int32_t max_rank, int64_t max_pairs);

#ifdef __cplusplus
}
#endif

#endif /* HEDDLE_C_LINEAR_SITE_H_ */
