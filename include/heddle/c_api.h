#ifndef HEDDLE_C_API_H_
#define HEDDLE_C_API_H_

/* The C interface of heddle: every public operation, for other languages. C11, and C++ from 11 on.
 * One long header, so that a generator of bindings has all in one place; only linear_site has a
 * header of its own, c_linear_site.h.
 *
 * Every operation is heddle_<name>(context, outputs, in-outs, inputs, scalars and options) and
 * means what heddle::<name> of heddle/ops/<family>.h means: formula, shapes, dtypes, rounding,
 * aliasing and bounds are written there. In short:
 * - Tensors are DLPack's (managed by the caller, read during the call alone): strides count
 *   elements, null strides mean without gaps. `DLTensor*` is written, `const DLTensor*` is read.
 *   Tensors lie on the context's device.
 * - NULL is an absent tensor where a comment says that it may be absent, and the defaults for a
 *   pointer to options.
 * - A function returns HEDDLE_OK or what went wrong; the message is heddle_last_error(). After a
 *   failure outputs are undefined only where the C++ contract says so: arguments are checked before
 *   anything is written. No C++ exception ever leaves.
 * - Options are structs with an init function that gives every field its default; call it before
 *   you set fields. A struct grows only with HEDDLE_ABI_VERSION, and so does the number in the
 *   library's file name. */

#include <dlpack/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heddle/c_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status ------------------------------------------------------------------------- */

#define HEDDLE_ABI_VERSION 5

/* HEDDLE_ABI_VERSION of the library that is loaded; it fits this header when both are equal. */
int32_t heddle_abi_version(void);

/* The library's version, "major.minor.patch". */
const char* heddle_version(void);

/* The message of the last call of this thread that failed, "" when none has; stays valid until the
   next failure. */
const char* heddle_last_error(void);

/* ---- Contexts -------------------------------------------------------------------------------- */

/* One for each (device, stream): owns workspace and threads. Make it before any graph capture. A
 * context runs one call at a time, whichever thread makes it; two contexts may run side by side. On
 * CUDA workspace lies on the device, calls are work of the stream, and a graph captured with a
 * context uses its memory: the context outlives it, and neither calls of the context nor another
 * graph captured with it may run at the same time. */
typedef struct heddle_context heddle_context;

typedef struct heddle_context_options {
  DLDevice
      device; /* {kDLCPU, 0}; on kDLCUDA operations without a CUDA kernel are HEDDLE_UNSUPPORTED */
  void* stream; /* NULL; the cudaStream_t of a CUDA device */
  /* 64 MiB. At least what the heddle_*_workspace_bytes of the calls to come say; these are SIZE_MAX
     for extents that no memory can hold, and heddle_last_error then says which. */
  size_t workspace_bytes;
  /* 0: one for each CPU of the machine; at most 1024. The caller counts: 1 starts no other thread.
     Not used on CUDA. */
  int32_t num_threads;
} heddle_context_options;

void heddle_context_options_init(heddle_context_options* options);
heddle_status heddle_context_create(heddle_context** context,
                                    const heddle_context_options* options);
/* NULL is fine. No call may be running; on CUDA it waits for the work of the device. */
void heddle_context_destroy(heddle_context* context);

/* On CUDA page tables and starts lie on the device and are read by kernels. With a word that is out
 * of range, or a null page where a real one is needed, attention and the operations of its cache
 * read and write nothing outside their arrays: outputs of the rows that use it are NaN, the cache
 * stays as it was, no other row changes, and the context keeps operation, array, row and value of
 * the first. The headers of the other operations say what they do with such values.
 * heddle_context_check waits for the context's stream (but not while that is captured) and is
 * HEDDLE_INVALID_ARGUMENT where there was one since it was last told; heddle_last_error has the
 * text. heddle_context_poll is the same without waiting. Both are HEDDLE_OK on the CPU, where the
 * call itself fails before it writes anything. */
heddle_status heddle_context_check(heddle_context* context);
heddle_status heddle_context_poll(heddle_context* context);

/* ---- Counts: heddle/core/count.h ------------------------------------------------------------- */

/* A number of requests: `value`, or where on_device is not NULL the one element (i32|i64) of that
   tensor, read on the device. */
typedef struct heddle_count {
  int64_t value;
  const DLTensor* on_device;
} heddle_count;

/* ---- Activation: heddle/ops/activation.h ----------------------------------------------------- */

/* y = silu(gate) * up;   all [num_tokens, width] */
heddle_status heddle_silu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up);

typedef int32_t heddle_gelu_form;
enum { HEDDLE_GELU_ERF = 0, HEDDLE_GELU_TANH = 1 };

/* y = gelu(gate) * up;   all [num_tokens, width] */
heddle_status heddle_gelu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up, heddle_gelu_form form);

/* ---- KV cache: heddle/ops/kv_cache.h --------------------------------------------------------- */

/* Where the keys and values of one layer lie: two views of a pool, k and v [num_pages,
 * num_kv_heads, page_size, head_dim] of equal strides; or pages by address (k and v are NULL), each
 * [num_layers, 2, num_kv_heads, page_size, head_dim].
 * A cache of f8e4m3 has scales: of a pool k_scales and v_scales [num_pages, num_kv_heads,
 * page_size] f32 of equal strides; of pages by address after their codes, [num_layers, 2,
 * num_kv_heads, page_size] f32 from the next multiple of 16 bytes on; of either k_scale and
 * v_scale, above 0, for all tokens instead. */
typedef struct heddle_paged_kv {
  DLTensor* k;
  DLTensor* v;
  DLDataType dtype; /* this and what follows: of pages by address */
  int32_t num_layers, layer_idx, num_kv_heads, page_size, head_dim;
  DLTensor* k_scales; /* this and what follows: of f8e4m3 */
  DLTensor* v_scales;
  float k_scale, v_scale; /* 0: each token has its own */
} heddle_paged_kv;
/* Tensors NULL, f32, one layer, all else 0. */
void heddle_paged_kv_init(heddle_paged_kv* cache);

/* Which pages each sequence uses. */
typedef struct heddle_page_table {
  const DLTensor* page_indptr;   /* [num_seqs + 1] */
  const DLTensor* pages;         /* [num pages] ids in the pool, or addresses (i64) */
  const DLTensor* last_page_len; /* [num_seqs] */
} heddle_page_table;

/* Stores the new tokens of each sequence at its end;   k, v [num_tokens, num_kv_heads, head_dim];
   seq_indptr [num_seqs + 1] */
heddle_status heddle_kv_init(heddle_context* context, const heddle_paged_kv* cache,
                             const heddle_page_table* table, const DLTensor* k, const DLTensor* v,
                             const DLTensor* seq_indptr);
/* The same with one new token per sequence;   k, v [num_seqs, num_kv_heads, head_dim] */
heddle_status heddle_kv_append(heddle_context* context, const heddle_paged_kv* cache,
                               const heddle_page_table* table, const DLTensor* k,
                               const DLTensor* v);

/* ---- Rotary positions: heddle/ops/rope.h ----------------------------------------------------- */

typedef struct heddle_rope_params {
  double theta;                        /* 1e4 */
  double scale;                        /* 1 */
  int32_t rotary_dim;                  /* 0: the whole head */
  bool has_llama3;                     /* false: the four fields below are not read */
  double llama3_factor;                /* 8 */
  double llama3_low_freq_factor;       /* 1 */
  double llama3_high_freq_factor;      /* 4 */
  double llama3_original_max_position; /* 8192 */
} heddle_rope_params;
void heddle_rope_params_init(heddle_rope_params* params);

/* The angle of pair d, below rotary_dim / 2, per position. */
double heddle_rope_frequency(const heddle_rope_params* params, int32_t rotary_dim, int32_t d);
/* cos, sin [num_tokens, rotary_dim / 2] f32; positions [num_tokens]; frequency_factors [rotary_dim
   / 2] f32 may be NULL */
heddle_status heddle_rope_table(heddle_context* context, DLTensor* cos, DLTensor* sin,
                                const DLTensor* positions, const heddle_rope_params* params,
                                const DLTensor* frequency_factors);
/* Turns x [num_tokens, num_heads, head_dim] in place by a table. */
heddle_status heddle_rope(heddle_context* context, DLTensor* x, const DLTensor* cos,
                          const DLTensor* sin);
/* The same from positions [num_tokens], without a table. */
heddle_status heddle_rope_positions(heddle_context* context, DLTensor* x, const DLTensor* positions,
                                    const heddle_rope_params* params);

/* heddle/ops/kv_cache.h: heddle_rope_positions of q, which may be NULL, and of k, then
 * heddle_kv_init, in one pass. seq_indptr NULL: one new token per sequence; positions NULL: the
 * tokens' places in the cache. */
heddle_status heddle_rope_kv_append(heddle_context* context, DLTensor* q,
                                    const heddle_paged_kv* cache, const heddle_page_table* table,
                                    const DLTensor* k, const DLTensor* v,
                                    const DLTensor* seq_indptr, const DLTensor* positions,
                                    const heddle_rope_params* rope);

/* ---- Attention: heddle/ops/attention.h ------------------------------------------------------- */

typedef struct heddle_attention_options {
  bool has_sm_scale; /* false: 1 / sqrt(head_dim) */
  float sm_scale;
  bool causal;             /* true; prefill alone */
  int64_t window_left;     /* -1: every key */
  float logits_soft_cap;   /* 0: none */
  bool has_rope;           /* false: q and k come rotated; else they are rotated inside by `rope` */
  heddle_rope_params rope; /* the defaults of heddle_rope_params_init */
  /* NULL, both; prefill alone. Bits of each query among its sequence's new tokens, and the first
     word of each sequence. */
  const DLTensor* tree_mask;        /* [num words] i32 */
  const DLTensor* tree_mask_indptr; /* [num_seqs + 1] */
  /* NULL; decode alone. Queries of one sequence that read its keys together, see
     heddle_decode_bundle. */
  const DLTensor* bundle_indptr; /* [num_bundles + 1] */
  int64_t max_bundle;            /* 1; no bundle has more queries, up to 16 */
} heddle_attention_options;
void heddle_attention_options_init(heddle_attention_options* options);

/* o, q [num_tokens, num_q_heads, head_dim]; lse [num_tokens, num_q_heads] f32 may be NULL; q_indptr
   [num_seqs + 1] */
heddle_status heddle_batch_prefill(heddle_context* context, DLTensor* o, DLTensor* lse,
                                   const DLTensor* q, const DLTensor* q_indptr,
                                   const heddle_paged_kv* cache, const heddle_page_table* table,
                                   const heddle_attention_options* options);
/* One query per sequence, after its last key;   o, q [num_seqs, num_q_heads, head_dim] */
heddle_status heddle_batch_decode(heddle_context* context, DLTensor* o, DLTensor* lse,
                                  const DLTensor* q, const heddle_paged_kv* cache,
                                  const heddle_page_table* table,
                                  const heddle_attention_options* options);
/* How many queries of a sequence may be one bundle, of num_queries of which the first shows kv_len
   keys and each later one a key more. SIZE_MAX for what there is not. */
size_t heddle_decode_bundle(DLDataType cache_dtype, int64_t num_q_heads, int64_t num_kv_heads,
                            int64_t head_dim, int64_t window_left, int64_t kv_len,
                            int64_t num_queries);
/* What it can use; with less a long sequence takes longer, to the same bits. 0 where there is no
   such device. */
size_t heddle_batch_decode_workspace_bytes(DLDevice device, int64_t num_seqs, int64_t num_q_heads,
                                           int64_t head_dim);
/* Attention over two disjoint sets of keys from the results over each;   lse may be NULL */
heddle_status heddle_merge_states(heddle_context* context, DLTensor* o, DLTensor* lse,
                                  const DLTensor* o_a, const DLTensor* lse_a, const DLTensor* o_b,
                                  const DLTensor* lse_b);

/* ---- Linear layers and stored weights: heddle/ops/linear.h, heddle/ops/embedding.h ----------- */

typedef int32_t heddle_weight_type;
enum {
  HEDDLE_F32 = 0,
  HEDDLE_F16 = 1,
  HEDDLE_BF16 = 2,
  HEDDLE_Q8_0 = 3, /* from here on blocks as in GGUF files */
  HEDDLE_Q4_0 = 4,
  HEDDLE_Q4_1 = 5,
  HEDDLE_Q5_0 = 6,
  HEDDLE_Q5_1 = 7,
  HEDDLE_Q4_K = 8,
  HEDDLE_Q5_K = 9,
  HEDDLE_Q6_K = 10
};

/* A weight that heddle_pack_rows has filled; 64-byte aligned. */
typedef struct heddle_packed_weight {
  heddle_weight_type type;
  int64_t out_features, in_features;
  const DLTensor* data; /* [heddle_packed_bytes] u8 */
} heddle_packed_weight;

/* Weights of one block, 1 for f32, f16 and bf16. */
heddle_status heddle_block_size(int32_t* size, heddle_weight_type type);
/* Bytes of num_weights consecutive weights of a row as a file holds them. */
heddle_status heddle_stored_bytes(size_t* bytes, heddle_weight_type type, int64_t num_weights);
heddle_status heddle_packed_bytes(size_t* bytes, heddle_weight_type type, int64_t out_features,
                                  int64_t in_features);

/* values [num_weights] f32 = the exact values of stored [heddle_stored_bytes] u8; both without
   gaps, in host memory. */
heddle_status heddle_dequantize(DLTensor* values, heddle_weight_type type, const DLTensor* stored);
/* Repacks the stored rows [first_row, first_row + num_rows);   packed, stored u8, without gaps */
heddle_status heddle_pack_rows(heddle_context* context, DLTensor* packed, heddle_weight_type type,
                               int64_t out_features, int64_t in_features, int64_t first_row,
                               int64_t num_rows, const DLTensor* stored);
/* y = x W^T;   y [num_tokens, out_features] f32; x [num_tokens, in_features] f32 */
heddle_status heddle_linear(heddle_context* context, DLTensor* y, const DLTensor* x,
                            const heddle_packed_weight* weight);
/* ys[i] = x weights[i]^T for i < num_outputs, in one parallel section. */
heddle_status heddle_linear_many(heddle_context* context, DLTensor* const* ys, int32_t num_outputs,
                                 const DLTensor* x, const heddle_packed_weight* weights);
/* y[t] = table[token_ids[t]];   table [vocab_size, width] */
heddle_status heddle_embedding(heddle_context* context, DLTensor* y, const DLTensor* token_ids,
                               const DLTensor* table);
/* The same from the rows of a packed weight. */
heddle_status heddle_packed_embedding(heddle_context* context, DLTensor* y,
                                      const DLTensor* token_ids,
                                      const heddle_packed_weight* weight);

/* ---- LoRA: heddle/ops/lora.h, heddle/ops/lora_table.h ---------------------------------------- */

/* Which adapter each row uses: slot_ids, or the three seg_*, or, for heddle_lora_apply, the pair_*;
   the others are NULL. */
typedef struct heddle_lora_batch {
  const DLTensor* slot_ids;   /* [num_tokens] */
  const DLTensor* seg_starts; /* [num_segments] */
  const DLTensor* seg_ends;   /* [num_segments] */
  const DLTensor* seg_slots;  /* [num_segments], or NULL: segment s uses slot s */
  const DLTensor* row_scale;  /* [num_tokens] f32, may be NULL */
  const DLTensor* plan; /* of heddle_lora_plan, may be NULL: a call on CUDA then makes its own */
  /* Token t has the pairs (adapter, scale) [pair_starts[t], pair_starts[t + 1]); max_pairs NULL:
     all of them, which the CPU
   * alone can count. */
  const DLTensor* pair_starts; /* [num_tokens + 1] */
  const DLTensor* pair_slots;  /* [num_pairs] */
  const DLTensor* pair_scales; /* [num_pairs] f32, may be NULL: 1 */
  const int64_t* max_pairs;    /* of a token: it uses its first ones */
} heddle_lora_batch;

typedef int32_t heddle_lora_layout;
enum {
  HEDDLE_LORA_RANK_MAJOR = 0, /* A [rank, in_features], B [rank, out_features] */
  HEDDLE_LORA_RANK_MINOR = 1  /* A [in_features, rank], B [out_features, rank] */
};

/* Owns the table of the adapters of one half (A or B) of a linear site. The weights stay the
   caller's. */
typedef struct heddle_adapter_table heddle_adapter_table;

/* features [num_slices]: in_features for A, out_features for B. context tells the device and is not
   kept. */
heddle_status heddle_adapter_table_create(heddle_context* context, heddle_adapter_table** table,
                                          int32_t num_slots, const int64_t* features,
                                          int32_t num_slices, int32_t max_rank, DLDataType dtype,
                                          heddle_lora_layout layout);
/* For weights that CUDA kernels load in vectors: heddle_adapter_table_set refuses others
   (LoraAlignment::k16Bytes). */
heddle_status heddle_adapter_table_create_aligned(heddle_context* context,
                                                  heddle_adapter_table** table, int32_t num_slots,
                                                  const int64_t* features, int32_t num_slices,
                                                  int32_t max_rank, DLDataType dtype,
                                                  heddle_lora_layout layout);
/* weight [rank, features] or [features, rank] must outlive its place in the table; scale multiplies
 * in expand (1: none). On CUDA set and clear are work of the context's stream, and a capture of it
 * captures them. */
heddle_status heddle_adapter_table_set(heddle_context* context, heddle_adapter_table* table,
                                       int32_t slot, int32_t slice, const DLTensor* weight,
                                       float scale);
heddle_status heddle_adapter_table_clear(heddle_context* context, heddle_adapter_table* table,
                                         int32_t slot);
/* NULL is fine. */
void heddle_adapter_table_destroy(heddle_adapter_table* table);

/* The weights of all slots in one of three addressings: the other two pointers are NULL. */
typedef struct heddle_lora_table {
  const heddle_adapter_table* adapters;
  /* [num_slots, rank, features] or [num_slots, features, rank], in `layout`. */
  const DLTensor* stack;
  /* [num_slots] i64: addresses of pages [num_layers, rank, features] or [num_layers, features,
     rank]. */
  const DLTensor* pointers;
  heddle_lora_layout layout; /* of stack and pointers */
  DLDataType dtype;          /* this and what follows: of the weights at pointers */
  int64_t rank, features, layer_idx;
} heddle_lora_table;
/* All NULL, HEDDLE_LORA_RANK_MAJOR, f32, layer_idx 0. */
void heddle_lora_table_init(heddle_lora_table* table);

/* y = scale * A x, += with accumulate;   y [num_tokens, rank]; x [num_tokens, in_features]; a
   [num_slots, ., .] */
heddle_status heddle_lora_shrink(heddle_context* context, DLTensor* y, const DLTensor* x,
                                 const DLTensor* a, const heddle_lora_batch* batch, float scale,
                                 bool accumulate, heddle_lora_layout layout);
/* The same with one slice of a table. */
heddle_status heddle_lora_shrink_table(heddle_context* context, DLTensor* y, const DLTensor* x,
                                       const heddle_lora_table* a, int32_t slice,
                                       const heddle_lora_batch* batch, float scale,
                                       bool accumulate);
/* y[:, slice_offset:] = scale * B h, += with accumulate;   y [num_tokens, .]; h [num_tokens, rank];
   b [num_slots, ., .] */
heddle_status heddle_lora_expand(heddle_context* context, DLTensor* y, const DLTensor* h,
                                 const DLTensor* b, const heddle_lora_batch* batch,
                                 int64_t slice_offset, float scale, bool accumulate,
                                 heddle_lora_layout layout);
/* The same with one slice of a table. */
heddle_status heddle_lora_expand_table(heddle_context* context, DLTensor* y, const DLTensor* h,
                                       const heddle_lora_table* b, int32_t slice,
                                       int64_t out_features, const heddle_lora_batch* batch,
                                       int64_t slice_offset, float scale, bool accumulate);
/* ys[s] += B A x for every slice s of a linear site;   ys[s] [num_tokens, out_features of s] */
heddle_status heddle_lora_apply(heddle_context* context, DLTensor* const* ys, int32_t num_slices,
                                const DLTensor* x, const heddle_lora_table* a,
                                const heddle_lora_table* b, const heddle_lora_batch* batch);
size_t heddle_lora_apply_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                         int32_t num_slices, int32_t max_rank);
/* For a batch with pairs; out_features: of all slices together, those whose y is f32 left
   out. */
size_t heddle_lora_pairs_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                         int64_t out_features, int32_t num_slices,
                                         int32_t max_rank);

/* CUDA: groups the rows of a batch by adapter, once for all sites of a step;   plan
 * [heddle_lora_plan_bytes] u8, 256-byte aligned; slot_ranks [num_slots] may be NULL: max_rank for
 * all. The plan is for calls whose batch has the same arrays, at the same addresses: with others,
 * as with a copy of them, y is NaN, and heddle_context_check tells. HEDDLE_UNSUPPORTED on the CPU,
 * where calls need no plan. */
heddle_status heddle_lora_plan(heddle_context* context, DLTensor* plan,
                               const heddle_lora_batch* batch, int64_t num_tokens,
                               int32_t num_slots, int32_t max_rank, const DLTensor* slot_ranks);
size_t heddle_lora_plan_bytes(int64_t num_tokens, int32_t max_rank);

/* ---- Mamba: heddle/ops/mamba.h --------------------------------------------------------------- */

/* current_states[s][l, state_idx[i]] = intermediate_states[s][l, state_idx[i], accepted_counts[i]]
 * for l < num_layers and each active request i that is not in prefill and has a slot.
 *   current_states[s] [num_state_layers, num_slots, ...]; intermediate_states[s] [num_state_layers,
 *   num_slots, S + 1, ...];
 *   prefill_status, state_idx, accepted_counts [num_requests]; num_active NULL: all */
heddle_status heddle_mamba_state_selective_copy(heddle_context* context,
                                                DLTensor* const* current_states,
                                                const DLTensor* const* intermediate_states,
                                                int32_t num_states, const DLTensor* prefill_status,
                                                const DLTensor* state_idx,
                                                const DLTensor* accepted_counts, int64_t num_layers,
                                                const heddle_count* num_active);

/* ---- Metadata: heddle/ops/metadata.h --------------------------------------------------------- */

/* All tensors are i32 or i64. fill_value: what entries that the formula does not reach get; NULL
   leaves them as they are. */

/* ragged[start(i) + j] = block_tables[i][j],   j < input_lengths[i] + cache_lengths[i];   total: of
   all lengths, may be NULL */
heddle_status heddle_block_tables_to_ragged(heddle_context* context, DLTensor* ragged,
                                            const DLTensor* block_tables,
                                            const DLTensor* input_lengths,
                                            const DLTensor* cache_lengths,
                                            const int64_t* fill_value, const int64_t* total);
/* block_tables[i][j] = ragged[cu_seqlens[i] + j] */
heddle_status heddle_block_tables_to_padded(heddle_context* context, DLTensor* block_tables,
                                            const DLTensor* ragged, const DLTensor* cu_seqlens,
                                            const int64_t* fill_value);
/* all_input_ids[i][cache_lengths[i] + input_lengths[i] + j] = next_input_ids[cu_accepted_ids[i] +
   j], after the prompt */
heddle_status heddle_copy_next_input_ids_inplace(heddle_context* context, DLTensor* all_input_ids,
                                                 const DLTensor* next_input_ids,
                                                 const DLTensor* cu_accepted_ids,
                                                 const DLTensor* cache_lengths,
                                                 const DLTensor* input_lengths,
                                                 const DLTensor* prompt_lengths);
/* position_ids[cu_seqlens[i] + j] = cache_lengths[i] + j; slot_indices the same + cu_slots[i];
   either may be NULL */
heddle_status heddle_prepare_position_slot_ids(heddle_context* context, DLTensor* position_ids,
                                               DLTensor* slot_indices,
                                               const DLTensor* cache_lengths,
                                               const DLTensor* cu_seqlens,
                                               const DLTensor* cu_slots);
/* filtered_slots[cu_slots[i] + j] = slots[slots_start[i] + j] */
heddle_status heddle_slots_filtering(heddle_context* context, DLTensor* filtered_slots,
                                     const DLTensor* slots, const DLTensor* cu_slots,
                                     const DLTensor* slots_start, const int64_t* fill_value);

/* Bits of heddle_prepare_batch_outputs.overflow. */
enum {
  HEDDLE_TOKEN_OVERFLOW = 1,
  HEDDLE_PAGE_OVERFLOW = 2,
  HEDDLE_MISSING_PAGES = 4,
  HEDDLE_SEGMENT_OVERFLOW = 8
};

/* What heddle::PrepareBatchOutputs says of each; any of them may be NULL. */
typedef struct heddle_prepare_batch_outputs {
  DLTensor* q_indptr;       /* [num_seqs + 1] */
  DLTensor* start_lengths;  /* [num_seqs] */
  DLTensor* kv_lengths;     /* [num_seqs] */
  DLTensor* page_indptr;    /* [num_seqs + 1] */
  DLTensor* last_page_len;  /* [num_seqs] */
  DLTensor* pages;          /* [max_pages] */
  DLTensor* page_table;     /* [num_seqs, width] */
  DLTensor* positions;      /* [num_tokens] */
  DLTensor* kv_slots;       /* [num_tokens] */
  DLTensor* token_to_seq;   /* [num_tokens] */
  DLTensor* input_ids;      /* [num_tokens] */
  DLTensor* slot_ids;       /* [num_tokens] */
  DLTensor* seg_starts;     /* [num_segments] */
  DLTensor* seg_ends;       /* [num_segments] */
  DLTensor* seg_slots;      /* [num_segments] */
  DLTensor* adapter_rows;   /* [num_tokens] */
  DLTensor* adapter_indptr; /* [num_slots + 1] */
  DLTensor* all_input_ids;  /* [num_seqs, max_length], in and out */
  DLTensor* overflow;       /* [1] */
} heddle_prepare_batch_outputs;
/* All NULL. */
void heddle_prepare_batch_outputs_init(heddle_prepare_batch_outputs* outputs);

/* What heddle::PrepareBatchInputs says of each; all but cache_lengths may be NULL. */
typedef struct heddle_prepare_batch_inputs {
  const DLTensor* cache_lengths;    /* [num_seqs] */
  const DLTensor* accepted_lengths; /* [num_seqs] */
  const DLTensor* input_lengths;    /* [num_seqs] */
  const DLTensor* num_active;       /* [1] or [] */
  const DLTensor* seq_page_table;   /* [num_seqs, width] */
  const DLTensor* seq_pages;        /* [any] */
  const DLTensor* seq_page_indptr;  /* [num_seqs + 1] */
  const DLTensor* adapter_slots;    /* [num_seqs] */
  const DLTensor* next_input_ids;   /* [any] */
  const DLTensor* next_indptr;      /* [num_seqs + 1] */
  const DLTensor* prompt_lengths;   /* [num_seqs] */
  int64_t page_size;                /* 0 */
  int64_t tokens_per_seq;           /* 1 */
  int64_t accepted_extra;           /* 0 */
  int64_t pad_page;                 /* -1 */
  int64_t pad_token;                /* 0 */
} heddle_prepare_batch_inputs;
void heddle_prepare_batch_inputs_init(heddle_prepare_batch_inputs* inputs);

/* All metadata of a step in one pass. */
heddle_status heddle_prepare_batch(heddle_context* context,
                                   const heddle_prepare_batch_outputs* outputs,
                                   const heddle_prepare_batch_inputs* inputs);

/* ---- Norm: heddle/ops/norm.h ----------------------------------------------------------------- */

typedef struct heddle_rms_norm_options {
  float epsilon;         /* 1e-6 */
  int32_t weight_offset; /* 0; 1: scale by 1 + weight */
  /* For an output of float8_e4m3fn one of the two, else NULL: what values are divided by. */
  const DLTensor* output_scale; /* NULL; one element f32 */
  DLTensor* row_scales;         /* NULL; [...] f32, written: max|value| / 448 of each row */
} heddle_rms_norm_options;
void heddle_rms_norm_options_init(heddle_rms_norm_options* options);

/* output = input / rms(input) * weight over the last axis;   output, input [..., width]; weight
   [width]; on CUDA, too */
heddle_status heddle_rms_norm(heddle_context* context, DLTensor* output, const DLTensor* input,
                              const DLTensor* weight, const heddle_rms_norm_options* options);
/* residual += input; output = rms_norm(residual) */
heddle_status heddle_fused_add_rms_norm(heddle_context* context, DLTensor* output,
                                        DLTensor* residual, const DLTensor* input,
                                        const DLTensor* weight,
                                        const heddle_rms_norm_options* options);

/* ---- Speculation: heddle/ops/speculation.h --------------------------------------------------- */

/* How many tokens were drafted for each decode request. */
typedef struct heddle_drafts {
  int64_t num_speculative_tokens; /* of every request, or with indptr the most that one may have */
  const DLTensor* indptr;         /* [>= num_decode_requests + 1], or NULL */
  bool reject_placeholders;       /* false; true: a draft -1 is never accepted */
} heddle_drafts;

/* The KV cache of the requests, changed in place. */
typedef struct heddle_kv_block_state {
  DLTensor* last_kv_block_offset; /* [rows] */
  DLTensor* kv_length_offsets;    /* [rows] */
  DLTensor* kv_block_counts;      /* [rows] */
  DLTensor* last_kv_block_id;     /* [rows] */
  DLTensor* kv_block_ids;         /* [rows, max_blocks] */
} heddle_kv_block_state;

/* Blocks that a rewind frees; any of these may be NULL. */
typedef struct heddle_released_blocks {
  DLTensor* blocks_to_release; /* [rows] */
  DLTensor* remove_mask;       /* [rows] bool|u8 */
  DLTensor* released_ids;      /* [capacity] */
  DLTensor* num_released;      /* [1] */
} heddle_released_blocks;

/* Accepts each draft that equals the output before it, up to the first that does not.
 *   last_one_indices [rows]; accepted_tokens_mask, input_tokens, output_tokens [num_tokens] or [1,
 *   num_tokens] */
heddle_status heddle_verify_speculative_tokens(heddle_context* context, DLTensor* last_one_indices,
                                               DLTensor* accepted_tokens_mask,
                                               const DLTensor* input_tokens,
                                               const DLTensor* output_tokens,
                                               const heddle_count* num_decode_requests,
                                               const heddle_count* num_prefill_requests,
                                               const heddle_drafts* drafts);

/* What each request goes on with.
 *   sampled_tokens, last_accepted_seq, accepted_counts [rows]; accepted_tokens [rows, S]; the last
 *   two with num_decode_requests rows alone, too, where that count is the host's and not
 *   write_prefill_rows; required_logit_indices [num_tokens]
 *   write_prefill_rows: accepted_tokens -1 and accepted_counts 0 for requests without drafts, too
 */
heddle_status heddle_prepare_next_forward_pass(
    heddle_context* context, DLTensor* sampled_tokens, DLTensor* last_accepted_seq,
    DLTensor* accepted_tokens, DLTensor* accepted_counts, const DLTensor* output_tokens,
    const DLTensor* required_logit_indices, const DLTensor* last_one_indices,
    const DLTensor* accepted_tokens_mask, const DLTensor* input_tokens,
    const heddle_count* num_decode_requests, const heddle_drafts* drafts, bool write_prefill_rows);

/* Takes rejected drafts off the cache, over any number of blocks.
 *   accepted_counts [num_requests]; prefill_status [>= num_requests]; released may be NULL;
 *   num_active NULL: all */
heddle_status heddle_rewind_kv_cache(heddle_context* context,
                                     const heddle_released_blocks* released,
                                     const heddle_kv_block_state* state,
                                     const DLTensor* accepted_counts,
                                     const DLTensor* prefill_status, const heddle_drafts* drafts,
                                     int64_t block_size_tokens, const heddle_count* num_active);

/* What heddle_speculative_step writes; any of these may be NULL. */
typedef struct heddle_speculative_step_outputs {
  DLTensor* last_one_indices;      /* [rows] */
  DLTensor* accepted_tokens_mask;  /* as input_tokens */
  DLTensor* sampled_tokens;        /* [rows] */
  DLTensor* last_accepted_seq;     /* [rows] */
  DLTensor* accepted_tokens;       /* [rows, S] */
  DLTensor* accepted_counts;       /* [rows] */
  heddle_released_blocks released; /* [rows] */
  DLTensor* next_positions;        /* [rows, num_next_tokens] */
  DLTensor* next_slots;            /* [rows, num_next_tokens] */
  DLTensor* next_kv_lens;          /* [rows] */
  DLTensor* next_last_page_len;    /* [rows] */
} heddle_speculative_step_outputs;
/* All NULL. */
void heddle_speculative_step_outputs_init(heddle_speculative_step_outputs* outputs);

typedef struct heddle_speculative_step_options {
  bool write_prefill_rows; /* false */
  int64_t num_next_tokens; /* 1 */
} heddle_speculative_step_options;
void heddle_speculative_step_options_init(heddle_speculative_step_options* options);

/* The three above in one launch, and where the tokens of the next step lie. required_logit_indices
 * may be NULL with outputs->last_accepted_seq. */
heddle_status heddle_speculative_step(
    heddle_context* context, const heddle_speculative_step_outputs* outputs,
    const heddle_kv_block_state* state, const DLTensor* input_tokens, const DLTensor* output_tokens,
    const DLTensor* required_logit_indices, const heddle_count* num_decode_requests,
    const heddle_count* num_prefill_requests, const heddle_drafts* drafts,
    int64_t block_size_tokens, const heddle_speculative_step_options* options);

/* Which occurrence of an n-gram drafts are taken from where there are several. */
typedef int32_t heddle_ngram_match;
enum { HEDDLE_NGRAM_FIRST = 0, HEDDLE_NGRAM_LAST = 1 };

typedef struct heddle_ngram_options {
  int64_t min_ngram, max_ngram; /* 1, 3 */
  heddle_ngram_match match;     /* HEDDLE_NGRAM_FIRST */
  int64_t max_length;           /* 0: any; tokens that a sequence may have with its drafts */
} heddle_ngram_options;
void heddle_ngram_options_init(heddle_ngram_options* options);

/* Drafts from a sequence's own tokens: those that followed where its last ones stood before.
 *   draft_tokens [num_rows, num_speculative_tokens]; num_drafts [num_rows]; tokens [num_rows,
 *   max_tokens]; lengths [num_rows] num_active NULL: all; options NULL: the defaults */
heddle_status heddle_propose_ngram_drafts(heddle_context* context, DLTensor* draft_tokens,
                                          DLTensor* num_drafts, const DLTensor* tokens,
                                          const DLTensor* lengths, int64_t num_speculative_tokens,
                                          const heddle_count* num_active,
                                          const heddle_ngram_options* options);

/* ---- Sampling: heddle/ops/sampling.h --------------------------------------------------------- */

/* How each row picks its token, all [num_rows]. */
typedef struct heddle_sampling_table {
  const DLTensor* temperature; /* f32; 0: greedy */
  const DLTensor* top_k;       /* i32; <= 0: all */
  const DLTensor* top_p;       /* f32; >= 1: all */
  const DLTensor* min_p;       /* f32; <= 0: all */
  const DLTensor* seed;        /* i64 */
  const DLTensor* step;        /* i64 */
} heddle_sampling_table;

/* token_ids [num_rows]; logprobs [num_rows] f32 may be NULL; logits [num_rows, vocab_size] f32 */
heddle_status heddle_sample(heddle_context* context, DLTensor* token_ids, DLTensor* logprobs,
                            const DLTensor* logits, const heddle_sampling_table* table);
heddle_status heddle_greedy(heddle_context* context, DLTensor* token_ids, DLTensor* logprobs,
                            const DLTensor* logits);
/* Log-probabilities of given tokens and the most likely ones.   logprobs [num_rows] f32; top_ids
   [num_rows, k] i32 and top_logprobs [num_rows, k] f32, both may be NULL; token_ids [num_rows] */
heddle_status heddle_token_logprobs(heddle_context* context, DLTensor* logprobs, DLTensor* top_ids,
                                    DLTensor* top_logprobs, const DLTensor* logits,
                                    const DLTensor* token_ids);
size_t heddle_sample_workspace_bytes(int64_t num_rows, int64_t vocab_size);

/* What heddle_adjust_logits changes: row r has the entries [indptr[r], indptr[r + 1]), by ascending
   id of their tokens. */
typedef struct heddle_logit_adjustments {
  const DLTensor* indptr;        /* [num_rows + 1] i32 */
  const DLTensor* token_ids;     /* [num_entries] i32 */
  const DLTensor* prompt_counts; /* [num_entries] i32: how often it is in the prompt */
  const DLTensor* output_counts; /* [num_entries] i32: how often it is in the answer so far */
  const DLTensor* bias;          /* [num_entries] f32; -infinity: the token is not drawn */
  const DLTensor* repetition;    /* [num_rows] f32; 1: off */
  const DLTensor* presence;      /* [num_rows] f32; 0: off */
  const DLTensor* frequency;     /* [num_rows] f32; 0: off */
} heddle_logit_adjustments;

/* Penalties and biases.   logits [num_rows, vocab_size] f32, in place; saved [num_entries] f32: the
   logits of before, may be NULL */
heddle_status heddle_adjust_logits(heddle_context* context, DLTensor* logits, DLTensor* saved,
                                   const heddle_logit_adjustments* adjustments);
/* Puts the saved logits back; reads indptr and token_ids alone. */
heddle_status heddle_restore_logits(heddle_context* context, DLTensor* logits,
                                    const DLTensor* saved,
                                    const heddle_logit_adjustments* adjustments);

/* ---- Verification of drafts: heddle/ops/verify.h --------------------------------------------- */

/* Which drafts does the target confirm, and what follows?   output_tokens [num_seqs, width];
 * num_accepted [num_seqs]; draft_tokens [N]; target_tokens [N + num_seqs]; draft_indptr [num_seqs +
 * 1] */
heddle_status heddle_verify_greedy(heddle_context* context, DLTensor* output_tokens,
                                   DLTensor* num_accepted, const DLTensor* draft_tokens,
                                   const DLTensor* target_tokens, const DLTensor* draft_indptr);
/* Speculative sampling.   draft_probs [N, vocab_size] f32, NULL for one-hot drafts; target_probs [N
 * + num_seqs, vocab_size] f32; seed, step [num_seqs] */
heddle_status heddle_verify_stochastic(heddle_context* context, DLTensor* output_tokens,
                                       DLTensor* num_accepted, const DLTensor* draft_tokens,
                                       const DLTensor* draft_probs, const DLTensor* target_probs,
                                       const DLTensor* draft_indptr, const DLTensor* seed,
                                       const DLTensor* step);
/* For trees of drafts.  accepted_nodes [num_seqs, width - 1]; tree_mask [N, words]: bits of a
   node's ancestors and its own */
heddle_status heddle_verify_tree_greedy(heddle_context* context, DLTensor* output_tokens,
                                        DLTensor* num_accepted, DLTensor* accepted_nodes,
                                        const DLTensor* draft_tokens, const DLTensor* target_tokens,
                                        const DLTensor* tree_mask, const DLTensor* node_indptr);
heddle_status heddle_verify_tree_stochastic(heddle_context* context, DLTensor* output_tokens,
                                            DLTensor* num_accepted, DLTensor* accepted_nodes,
                                            const DLTensor* draft_tokens,
                                            const DLTensor* draft_probs,
                                            const DLTensor* target_probs, const DLTensor* tree_mask,
                                            const DLTensor* node_indptr, const DLTensor* seed,
                                            const DLTensor* step);
/* What to move in the cache so that an accepted path has no gaps.   from_positions, to_positions,
 * accepted_nodes [num_seqs, max_depth]; num_accepted, root_positions [num_seqs] */
heddle_status heddle_tree_kv_moves(heddle_context* context, DLTensor* from_positions,
                                   DLTensor* to_positions, const DLTensor* accepted_nodes,
                                   const DLTensor* num_accepted, const DLTensor* root_positions);

#ifdef __cplusplus
}
#endif

#endif /* HEDDLE_C_API_H_ */
