#include "ops/attention/kv_append/run_cuda.h"

#include <limits>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"

#include "core/kernel_log.h"
#include "ops/attention/kv_append/kv_append_cuda_params.h"
#include "ops/attention/paged/aligned_rows.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/rotary_frequencies.h"

namespace heddle::cuda::attention {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

struct Described {
  AppendCall call;
  bool is_cache_aligned;
};

/// Every question about alignment is asked here, and for q in run_rope_append().
Described describe(const AppendArgs& args) {
  Described result;
  result.is_cache_aligned = has_aligned_rows(args.cache);
  AppendCall& call = result.call;
  call.num_tokens = args.k.size(0);
  call.num_kv_heads = args.cache.num_kv_heads;
  call.head_dim = args.cache.head_dim;
  call.element_bytes = static_cast<int>(size_of(args.k.dtype()));
  call.is_aligned = result.is_cache_aligned && args.k.dtype() == args.cache.dtype &&
                    begin_aligned(args.k) && begin_aligned(args.v);
  call.stores_codes = args.cache.dtype == DType::kFloat8E4M3;
  return result;
}

KvAppendParams pack(const ExecContext& ctx, const AppendArgs& args, const Described& described,
                    const AppendChoice& choice) {
  const int64_t element = described.call.element_bytes;
  KvAppendParams p;
  p.kv = PagedKvParams(ctx, args.cache, args.table, described.is_cache_aligned);
  p.k = args.k.raw();
  p.v = args.v.raw();
  p.k_token = args.k.stride(0) * element;
  p.k_head = args.k.stride(1) * element;
  p.v_token = args.v.stride(0) * element;
  p.v_head = args.v.stride(1) * element;
  p.seq_indptr = ConstIndexVector(args.seq_indptr);
  p.num_tokens = args.k.size(0);
  p.num_seqs = static_cast<int32_t>(args.table.last_page_len.size(0));
  p.num_kv_heads = args.cache.num_kv_heads;
  p.head_units = choice.head_units;
  p.from = args.k.dtype();
  p.to = args.cache.dtype;
  const int64_t units = 2 * int64_t{p.num_kv_heads} * p.head_units;
  HEDDLE_CHECK(p.num_tokens * choice.warps_per_token <= kMaxInt - 32 && units <= kMaxInt, "k has ",
               args.k.size(0), " rows of ", args.k.size(1), " x ", args.k.size(2),
               ", too many for one launch");
  p.warps_per_token = static_cast<int32_t>(choice.warps_per_token);
  p.by_head_units = FastDivisor(static_cast<uint32_t>(p.head_units));
  p.by_warps_per_token = FastDivisor(static_cast<uint32_t>(p.warps_per_token));
  return p;
}

/// Whether there is something to do. With HEDDLE_VALIDATE=1 the tables are checked.
bool begin_call(const ExecContext& ctx, const AppendArgs& args) {
  const int64_t num_seqs = args.table.last_page_len.size(0);
  if (num_seqs == 0 || args.k.size(0) == 0) return false;
  if (validating()) {
    validate_tables(ctx, args.cache, args.table, num_seqs, "seq_indptr", args.seq_indptr,
                    args.k.size(0));
  }
  return true;
}

}  // namespace

void run_append(const ExecContext& ctx, const AppendArgs& args) {
  if (!begin_call(ctx, args)) return;
  const Described described = describe(args);
  const AppendChoice choice = select_append_kernel(described.call, ctx.info);
  log_choice("kv_append", choice);
  launch_kv_append(ctx, pack(ctx, args, described, choice), KvScaleParams(args.cache), choice);
}

void run_rope_append(const ExecContext& ctx, const AppendArgs& args, const TensorView& q,
                     const ConstTensorView& positions, const RopeParams& rope) {
  if (!begin_call(ctx, args)) return;
  const RotaryFrequencies frequencies = rotary_frequencies(rope, args.cache.head_dim);
  Described described = describe(args);
  described.call.num_pairs = frequencies.num_pairs;
  RopeAppendParams r;
  r.positions = ConstIndexVector(positions);
  if (q) {
    const int64_t element = described.call.element_bytes;
    r.q = q.raw();
    r.q_token = q.stride(0) * element;
    r.q_head = q.stride(1) * element;
    r.num_q_heads = static_cast<int32_t>(q.size(1));
    described.call.num_q_heads = r.num_q_heads;
    described.call.is_q_aligned = begin_aligned(q);
  }
  const AppendChoice choice = select_append_kernel(described.call, ctx.info);
  log_choice("rope_kv_append", choice);
  r.is_speculative = choice.is_speculative;
  const KvAppendParams p = pack(ctx, args, described, choice);
  const RowPartition rows{
      .threads_per_row = choice.threads_per_row,
      .rows_at_once = choice.threads / choice.threads_per_row,
      .by_threads_per_row = FastDivisor(static_cast<uint32_t>(choice.threads_per_row)),
      .by_head_units = p.by_head_units};
  launch_rope_kv_append(ctx, p, KvScaleParams(args.cache), r, rows, frequencies, choice);
}

}  // namespace heddle::cuda::attention
