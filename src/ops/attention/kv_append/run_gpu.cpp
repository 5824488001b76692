#include "ops/attention/kv_append/run_gpu.h"

#include <limits>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/validate.h"

#include "ops/attention/kv_append/kv_append_cuda_params.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/rotary_frequencies.h"

namespace heddle {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kVectorBytes = 16;

/// Threads that a chip runs at the same time, by multiprocessor: below so many, a thread has one unit, since latency is all.
constexpr int64_t kThreadsOfMultiprocessor = 2048;

/// Whether rows [num_tokens, num_heads, head_dim] begin at multiples of 16 bytes.
bool is_aligned(const ConstTensorView& rows) {
  const auto element = static_cast<int64_t>(size_of(rows.dtype()));
  return (reinterpret_cast<intptr_t>(rows.raw()) | rows.stride(0) * element |
          rows.stride(1) * element) %
             kVectorBytes ==
         0;
}

struct Packed {
  cuda::attention::KvAppendParams params;
  bool is_vector;
};

Packed pack(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
            const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& seq_indptr) {
  const auto element = static_cast<int64_t>(size_of(k.dtype()));
  Packed result;
  cuda::attention::KvAppendParams& p = result.params;
  p.kv = cuda::attention::PagedKvParams(cache, table);
  result.is_vector = p.kv.is_aligned && k.dtype() == cache.dtype && is_aligned(k) && is_aligned(v);
  p.k = k.raw();
  p.v = v.raw();
  p.k_token = k.stride(0) * element;
  p.k_head = k.stride(1) * element;
  p.v_token = v.stride(0) * element;
  p.v_head = v.stride(1) * element;
  p.seq_indptr = cuda::attention::IndexParams(seq_indptr);
  p.num_tokens = k.size(0);
  p.num_seqs = static_cast<int32_t>(table.last_page_len.size(0));
  p.num_kv_heads = cache.num_kv_heads;
  p.head_units = result.is_vector ? static_cast<int32_t>(cache.head_dim * element / kVectorBytes)
                                  : cache.head_dim;
  p.from = k.dtype();
  p.to = cache.dtype;
  const int64_t units = 2 * int64_t{p.num_kv_heads} * p.head_units;
  const bool is_small = p.num_tokens * units <= ctx.info.num_sms * kThreadsOfMultiprocessor;
  const int64_t of_thread = result.is_vector && is_small ? 1 : cuda::attention::kAppendUnits;
  p.warps_per_token = static_cast<int32_t>((units + 32 * of_thread - 1) / (32 * of_thread));
  p.by_head_units = cuda::attention::Divisor(static_cast<uint32_t>(p.head_units));
  p.by_warps_per_token = cuda::attention::Divisor(static_cast<uint32_t>(p.warps_per_token));
  HEDDLE_CHECK(p.num_tokens * p.warps_per_token <= kMaxInt - 32 && units <= kMaxInt, "k has ",
               k.size(0), " rows of ", k.size(1), " x ", k.size(2), ", too many for one launch");
  return result;
}

}  // namespace

void append_on_cuda(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                    const ConstTensorView& k, const ConstTensorView& v,
                    const ConstTensorView& seq_indptr) {
  if constexpr (kWithCuda) {
    const int64_t num_seqs = table.last_page_len.size(0);
    if (num_seqs == 0 || k.size(0) == 0) return;
    if (validating()) {
      cuda::attention::validate_tables(ctx, cache, table, num_seqs, "seq_indptr", seq_indptr,
                                       k.size(0));
    }
    const Packed packed = pack(ctx, cache, table, k, v, seq_indptr);
    cuda::attention::launch_kv_append(ctx, packed.params, packed.is_vector);
  } else {
    throw_error(ErrorCode::kUnsupported, "kv_append: built without CUDA");
  }
}

void rope_append_on_cuda(const ExecContext& ctx, const TensorView& q, const PagedKv& cache,
                         const PageTable& table, const ConstTensorView& k, const ConstTensorView& v,
                         const ConstTensorView& seq_indptr, const ConstTensorView& positions,
                         const RopeParams& rope) {
  if constexpr (kWithCuda) {
    const int64_t num_seqs = table.last_page_len.size(0);
    if (num_seqs == 0 || k.size(0) == 0) return;
    if (validating()) {
      cuda::attention::validate_tables(ctx, cache, table, num_seqs, "seq_indptr", seq_indptr,
                                       k.size(0));
    }
    Packed packed = pack(ctx, cache, table, k, v, seq_indptr);
    const cuda::RotaryFrequencies frequencies = rotary_frequencies(rope, cache.head_dim);
    cuda::attention::RopeAppendParams r;
    r.positions = cuda::attention::IndexParams(positions);
    r.head_dim = cache.head_dim;
    const auto element = static_cast<int64_t>(size_of(k.dtype()));
    bool is_vector = packed.is_vector && frequencies.num_pairs * element % kVectorBytes == 0;
    if (q) {
      r.q = q.raw();
      r.q_token = q.stride(0) * element;
      r.q_head = q.stride(1) * element;
      r.num_q_heads = static_cast<int32_t>(q.size(1));
      is_vector = is_vector && is_aligned(q);
    }
    if (!is_vector) packed.params.head_units = cache.head_dim;
    cuda::attention::launch_rope_kv_append(ctx, packed.params, r, frequencies, is_vector);
  } else {
    throw_error(ErrorCode::kUnsupported, "rope_kv_append: built without CUDA");
  }
}

}  // namespace heddle
