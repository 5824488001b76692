#ifndef HEDDLE_C_API_H_
#define HEDDLE_C_API_H_

/* The C interface of heddle: every public operation, for other languages. C11, and C++ from 11 on.
 *
 * Every operation is heddle_<name>(context, outputs, in-outs, inputs, scalars and options) and means what heddle::<name> of
 * heddle/ops/<family>.h means: formula, shapes, dtypes, rounding, aliasing and bounds are written there. In short:
 * - Tensors are DLPack's (managed by the caller, read during the call alone): strides count elements, null strides mean
 *   without gaps. `DLTensor*` is written, `const DLTensor*` is read. Tensors lie on the context's device.
 * - NULL is an absent tensor where a comment says that it may be absent, and the defaults for a pointer to options.
 * - A function returns HEDDLE_OK or what went wrong; the message is heddle_last_error(). After a failure outputs are undefined
 *   only where the C++ contract says so: arguments are checked before anything is written. No C++ exception ever leaves.
 * - Options are structs with an init function that gives every field its default; call it before you set fields. A struct
 *   grows only with HEDDLE_ABI_VERSION, and so does the number in the library's file name. */

#include <dlpack/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status ------------------------------------------------------------------------------------------------ */

#define HEDDLE_ABI_VERSION 1

/* HEDDLE_ABI_VERSION of the library that is loaded; it fits this header when both are equal. */
int32_t heddle_abi_version(void);

/* The library's version, "major.minor.patch". */
const char* heddle_version(void);

typedef enum heddle_status {
  HEDDLE_OK = 0,
  /* The caller's mistake; the message names the argument and the values. */
  HEDDLE_INVALID_ARGUMENT = 1,
  /* Nothing wrong, but not implemented for this dtype, size or device. */
  HEDDLE_UNSUPPORTED = 2,
  /* Of the workspace, or of the machine. */
  HEDDLE_OUT_OF_MEMORY = 3,
  HEDDLE_CUDA_ERROR = 4,
  /* A bug of heddle, or a machine that has no more threads to give. */
  HEDDLE_INTERNAL_ERROR = 5
} heddle_status;

/* The message of the last call of this thread that failed, "" when none has; stays valid until the next failure. */
const char* heddle_last_error(void);

/* ---- Contexts ------------------------------------------------------------------------------------------------------- */

/* One for each (device, stream): owns workspace and threads. Make it before any graph capture. A context runs one call at a
 * time, whichever thread makes it; two contexts may run side by side. */
typedef struct heddle_context heddle_context;

typedef struct heddle_context_options {
  DLDevice device; /* {kDLCPU, 0} */
  void* stream;    /* NULL; the cudaStream_t of a CUDA device */
  /* 64 MiB. At least what the heddle_*_workspace_bytes of the calls to come say. */
  size_t workspace_bytes;
  /* 0: one for each CPU of the machine. The caller counts: 1 starts no other thread. */
  int32_t num_threads;
} heddle_context_options;

void heddle_context_options_init(heddle_context_options* options);
heddle_status heddle_context_create(heddle_context** context,
                                    const heddle_context_options* options);
/* NULL is fine. No call may be running. */
void heddle_context_destroy(heddle_context* context);

/* ---- Activation: heddle/ops/activation.h ---------------------------------------------------------------------------- */

/* y = silu(gate) * up;   all [num_tokens, width] */
heddle_status heddle_silu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up);

/* ---- LoRA: heddle/ops/lora.h, heddle/ops/lora_table.h --------------------------------------------------------------- */

/* Which adapter each row uses: slot_ids, or the three seg_*; the others are NULL. */
typedef struct heddle_lora_batch {
  const DLTensor* slot_ids;   /* [num_tokens] */
  const DLTensor* seg_starts; /* [num_segments] */
  const DLTensor* seg_ends;   /* [num_segments] */
  const DLTensor* seg_slots;  /* [num_segments] */
  const DLTensor* row_scale;  /* [num_tokens] f32, may be NULL */
} heddle_lora_batch;

typedef enum heddle_lora_layout {
  HEDDLE_LORA_RANK_MAJOR = 0, /* A [rank, in_features], B [rank, out_features] */
  HEDDLE_LORA_RANK_MINOR = 1  /* A [in_features, rank], B [out_features, rank] */
} heddle_lora_layout;

/* Owns the table of the adapters of one half (A or B) of a linear site. The weights stay the caller's. */
typedef struct heddle_adapter_table heddle_adapter_table;

/* features [num_slices]: in_features for A, out_features for B. context tells the device and is not kept. */
heddle_status heddle_adapter_table_create(heddle_context* context, heddle_adapter_table** table,
                                          int32_t num_slots, const int64_t* features,
                                          int32_t num_slices, int32_t max_rank, DLDataType dtype,
                                          heddle_lora_layout layout);
/* weight [rank, features] or [features, rank] must outlive its place in the table; scale multiplies in expand (1: none). */
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
  const DLTensor*
      stack; /* [num_slots, rank, features] or [num_slots, features, rank], in `layout` */
  const DLTensor*
      pointers; /* [num_slots] i64: addresses of pages [num_layers, rank, features] or [.., features, rank] */
  heddle_lora_layout layout; /* of stack and pointers */
  DLDataType dtype;          /* this and what follows: of the weights at pointers */
  int64_t rank, features, layer_idx;
} heddle_lora_table;
/* All NULL, HEDDLE_LORA_RANK_MAJOR, f32, layer_idx 0. */
void heddle_lora_table_init(heddle_lora_table* table);

/* y = scale * A x, += with accumulate;   y [num_tokens, rank]; x [num_tokens, in_features]; a [num_slots, ., .] */
heddle_status heddle_lora_shrink(heddle_context* context, DLTensor* y, const DLTensor* x,
                                 const DLTensor* a, const heddle_lora_batch* batch, float scale,
                                 bool accumulate, heddle_lora_layout layout);
/* The same with one slice of a table. */
heddle_status heddle_lora_shrink_table(heddle_context* context, DLTensor* y, const DLTensor* x,
                                       const heddle_lora_table* a, int32_t slice,
                                       const heddle_lora_batch* batch, float scale,
                                       bool accumulate);
/* y[:, slice_offset:] = scale * B h, += with accumulate;   y [num_tokens, .]; h [num_tokens, rank]; b [num_slots, ., .] */
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
size_t heddle_lora_apply_workspace_bytes(int64_t num_tokens, int32_t num_slices, int32_t max_rank);

/* ---- Metadata: heddle/ops/metadata.h -------------------------------------------------------------------------------- */

/* All tensors are i32 or i64. fill_value: what entries that the formula does not reach get; NULL leaves them as they are. */

/* ragged[start(i) + j] = block_tables[i][j],   j < input_lengths[i] + cache_lengths[i];   total: of all lengths, may be NULL */
heddle_status heddle_block_tables_to_ragged(heddle_context* context, DLTensor* ragged,
                                            const DLTensor* block_tables,
                                            const DLTensor* input_lengths,
                                            const DLTensor* cache_lengths,
                                            const int64_t* fill_value, const int64_t* total);
/* block_tables[i][j] = ragged[cu_seqlens[i] + j] */
heddle_status heddle_block_tables_to_padded(heddle_context* context, DLTensor* block_tables,
                                            const DLTensor* ragged, const DLTensor* cu_seqlens,
                                            const int64_t* fill_value);
/* all_input_ids[i][cache_lengths[i] + input_lengths[i] + j] = next_input_ids[cu_accepted_ids[i] + j], behind the prompt */
heddle_status heddle_copy_next_input_ids_inplace(heddle_context* context, DLTensor* all_input_ids,
                                                 const DLTensor* next_input_ids,
                                                 const DLTensor* cu_accepted_ids,
                                                 const DLTensor* cache_lengths,
                                                 const DLTensor* input_lengths,
                                                 const DLTensor* prompt_lengths);
/* position_ids[cu_seqlens[i] + j] = cache_lengths[i] + j; slot_indices the same + cu_slots[i];   either may be NULL */
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

/* ---- Norm: heddle/ops/norm.h ---------------------------------------------------------------------------------------- */

typedef struct heddle_rms_norm_options {
  float epsilon;         /* 1e-6 */
  int32_t weight_offset; /* 0; 1: scale by 1 + weight */
} heddle_rms_norm_options;
void heddle_rms_norm_options_init(heddle_rms_norm_options* options);

/* output = input / rms(input) * weight over the last axis;   output, input [..., width]; weight [width] */
heddle_status heddle_rms_norm(heddle_context* context, DLTensor* output, const DLTensor* input,
                              const DLTensor* weight, const heddle_rms_norm_options* options);
/* residual += input; output = rms_norm(residual) */
heddle_status heddle_fused_add_rms_norm(heddle_context* context, DLTensor* output,
                                        DLTensor* residual, const DLTensor* input,
                                        const DLTensor* weight,
                                        const heddle_rms_norm_options* options);

#ifdef __cplusplus
}
#endif

#endif /* HEDDLE_C_API_H_ */
