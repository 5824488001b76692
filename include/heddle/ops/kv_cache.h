#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/rope.h"

namespace heddle {

/// Where the keys and values of one layer lie. Kernel-ready: trivially copyable, no CUDA, strides
/// count elements.
///
/// Element (page, head h, slot s, dim d) of K is at
///   address(page) + k_offset + h * head_stride + s * slot_stride + d        (v_offset for V)
/// and address(page) is `pool + page_id * page_stride` when pages are numbered (pool not null), or
/// the page's own address out of the page table when they are not. So token-major, head-major and
/// split K/V pools are all plain values here, and so is the layer of a page that holds all layers.
/// The last axis is without gaps.
///
/// A cache of f8e4m3 holds codes: an element is its scale times its code. The scale is one f32 for
/// all of K and one for all of V, or one for each token and kv head: then the scale of key (page,
/// h, s) is float number
///   k_scale_offset + h * scale_head_stride + s * scale_slot_stride          (v_scale_offset for V)
/// from scale_pool + page_id * scale_page_stride on, or from address(page) on where scale_pool is
/// null: scales may lie in the page itself. They begin at multiples of 4 bytes.
struct PagedKv {
  DType dtype = DType::kFloat32;  // f32|f16|bf16|f8e4m3
  Device device;
  std::byte* pool = nullptr;  // nullptr: the page table holds addresses
  int64_t num_pages = 0;      // of the pool; 0 where the table holds addresses
  int64_t page_stride = 0;
  int64_t k_offset = 0, v_offset = 0;
  int64_t head_stride = 0, slot_stride = 0;
  int num_kv_heads = 0, page_size = 0, head_dim = 0;

  // Of f8e4m3 alone.
  bool has_token_scales = false;  // false: k_scale and v_scale are those of all tokens
  float k_scale = 1.0f, v_scale = 1.0f;
  float* scale_pool = nullptr;    // nullptr: scales lie in the pages, always with addresses
  int64_t scale_page_stride = 0;  // this and the following count floats
  int64_t k_scale_offset = 0, v_scale_offset = 0;
  int64_t scale_head_stride = 0, scale_slot_stride = 0;

  /// A pool of pages that are numbered by their place: both [num_pages, num_kv_heads, page_size,
  /// head_dim] with equal strides (permute the axes of the view for token-major pages; narrow a
  /// larger tensor for one layer).
  [[nodiscard]] static PagedKv from_pool(TensorView k_pages, TensorView v_pages);
  /// Of f8e4m3 with a scale for each token and kv head: both [num_pages, num_kv_heads, page_size]
  /// f32 with equal strides, in tensors of their own or between the codes of the pages.
  [[nodiscard]] static PagedKv from_pool(TensorView k_pages, TensorView v_pages,
                                         TensorView k_scales, TensorView v_scales);
  /// Of f8e4m3 with one scale for all keys and one for all values, above 0 and up to 1e36.
  [[nodiscard]] static PagedKv from_pool(TensorView k_pages, TensorView v_pages, float k_scale,
                                         float v_scale);

  /// Pages of their own addresses, each [num_layers, 2, num_kv_heads, page_size, head_dim] without
  /// gaps, K before V (Punica's layout); layer_idx picks the layer. In a page of f8e4m3 the scales
  /// of all layers follow the codes, [num_layers, 2, num_kv_heads, page_size] f32 from the next
  /// multiple of 16 bytes on.
  [[nodiscard]] static PagedKv from_pointers(DType dtype, Device device, int num_layers,
                                             int layer_idx, int num_kv_heads, int page_size,
                                             int head_dim);
  /// The same codes with one scale for all keys and one for all values, in place of others.
  [[nodiscard]] PagedKv with_scales(float k_scale, float v_scale) const;
  /// Bytes of a page of from_pointers; of f8e4m3 a multiple of 16.
  [[nodiscard]] static int64_t page_bytes(DType dtype, int num_layers, int num_kv_heads,
                                          int page_size, int head_dim);
};

/// Which pages a batch of sequences uses, in CSR form. The length of sequence i is
///   kv_len(i) = (num pages of i - 1) * page_size + last_page_len[i],  0 when it has no page.
/// On the CPU page_indptr and last_page_len are always checked, and so are the pages that tokens of
/// the call need: one outside the pool, or a null address, is an error before anything is written.
/// With HEDDLE_VALIDATE=1 so are all pages of a sequence.
/// On CUDA kernels read the table, so a captured graph replays with what it then holds. What is
/// wrong there leads to no read or write outside: rows that need a wrong page, and all rows of a
/// sequence with a wrong start or length, are NaN in o, lse and q of rope_kv_append, and are not
/// stored; the context keeps the first such fault (CudaContext::check()). With HEDDLE_VALIDATE=1
/// all of it is an error, outside captures. Pages with addresses begin at multiples of 16 bytes; a
/// sequence has fewer than 2^31 tokens, and pool and table fewer than 2^32 pages.
struct PageTable {
  ConstTensorView page_indptr;    // [num_seqs + 1] i32|i64, ascending from 0
  ConstTensorView pages;          // [page_indptr[num_seqs]] ids i32|i64; addresses i64 without pool
  ConstTensorView last_page_len;  // [num_seqs] i32|i64: tokens in the last page, 1 to page_size
};

/// Stores the new keys and values of each sequence after those that it holds: token j of the n(i)
/// new ones of sequence i goes to position kv_len(i) - n(i) + j. The table describes the state
/// after the call (lengths include the new tokens).
///   k, v [num_tokens, num_kv_heads, head_dim]  f32|f16|bf16; rounded once where the cache has
///                                              another dtype
///   seq_indptr [num_seqs + 1]                  i32|i64: tokens of sequence i are rows
///                                              [seq_indptr[i], seq_indptr[i+1])
/// A sequence without pages or without new tokens is skipped; of n(i) > kv_len(i) tokens the last
/// kv_len(i) are stored.
/// Nothing else in the cache is touched. Strides of k and v: any, last axis without gaps.
/// Into a cache of f8e4m3 with scales of tokens, each head of a key or value is stored as
///   scale = max |x_d| / 448,  code_d = f8e4m3(x_d / scale), 0 where scale is 0
/// with f32 divisions, rounded to nearest, ties to even: its bits depend on that head of that token
/// alone. With one scale for all code_d = f8e4m3(x_d / k_scale), of v by v_scale, and what is
/// larger than 448 is stored as 448. An x_d that is not finite gets the code of NaN, 0x7f; NaN
/// counts nothing in the maximum, and infinity makes scale infinite: all of its head is read as
/// NaN.
void kv_init(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
             ConstTensorView k, ConstTensorView v, ConstTensorView seq_indptr);

/// One new token per sequence, k and v [num_seqs, num_kv_heads, head_dim]: kv_init with n(i) = 1.
void kv_append(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
               ConstTensorView k, ConstTensorView v);

/// rope of q and k, then kv_init of k and v, in one pass (on CUDA in one launch) and with the same
/// bits.
///   q          [num_tokens, num_q_heads, head_dim]  dtype of k, rotated in place; or absent
///   seq_indptr [num_seqs + 1]                       as in kv_init; absent: one new token per
///                                                   sequence, as in kv_append
///   positions  [num_tokens] i32|i64                 the angles' positions; absent: the tokens'
///                                                   places in the cache
/// head_dim up to 256. A row that is not stored is not rotated either. k may not overlap q or the
/// cache.
void rope_kv_append(const ExecContext& ctx, TensorView q, const PagedKv& cache,
                    const PageTable& table, ConstTensorView k, ConstTensorView v,
                    ConstTensorView seq_indptr, ConstTensorView positions, const RopeParams& rope);

}  // namespace heddle
