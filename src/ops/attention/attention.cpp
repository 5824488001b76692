#include "heddle/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/product.h"

#include "core/scoped_operation.h"
#include "ops/attention/call/attention_args.h"
#include "ops/attention/call/decode_cut.h"
#include "ops/attention/cpu/attend.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/check_rope.h"
#include "ops/attention/run/run_cuda.h"

namespace heddle {
namespace {

/// Checks o, q and lse [num_tokens, num_q_heads(, head_dim)] against the cache; returns
/// num_q_heads.
int64_t check_rows(const ExecContext& ctx, const TensorView& o, const TensorView& lse,
                   const ConstTensorView& q, Dim& num_tokens, const PagedKv& cache) {
  Dim q_heads("num_q_heads"), head_dim("head_dim", cache.head_dim);
  check_shape("q", q, {&num_tokens, &q_heads, &head_dim});
  check_shape("o", o, {&num_tokens, &q_heads, &head_dim});
  check_dtype("q", q, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("o", o, {q.dtype()});
  check_unit_stride("q", q);
  check_unit_stride("o", o);
  check_device(ctx, {{"q", q}, {"o", o}, {"lse", lse}});
  HEDDLE_CHECK(q_heads.value() % cache.num_kv_heads == 0, "q.size(1) is ", q_heads.value(),
               ", expected a multiple of the cache's num_kv_heads = ", cache.num_kv_heads);
  if (cache.head_dim > kMaxHeadDim) {
    throw_error(ErrorCode::kUnsupported, "head_dim is ", cache.head_dim, ", supported: up to ",
                kMaxHeadDim);
  }
  return q_heads.value();
}

void check_options(const ExecContext& ctx, const AttentionOptions& options, const PagedKv& cache) {
  HEDDLE_CHECK(options.logits_soft_cap >= 0.0f, "options.logits_soft_cap is ",
               options.logits_soft_cap, ", expected >= 0");
  HEDDLE_CHECK(options.window_left >= -1, "options.window_left is ", options.window_left,
               ", expected >= -1");
  if (options.rope) check_rope(ctx, "options.rope", *options.rope, cache.head_dim);
}

void check_lse(const TensorView& lse, Dim& num_tokens, int64_t num_q_heads) {
  if (!lse) return;
  Dim q_heads("num_q_heads", num_q_heads);
  check_shape("lse", lse, {&num_tokens, &q_heads});
  check_dtype("lse", lse, {DType::kFloat32});
}

/// Checks the tree masks of a call with q_indptr. What they say is read on the CPU alone.
void check_trees(const ExecContext& ctx, const AttentionOptions& options, const Dim& num_seqs,
                 const ConstTensorView& q_indptr) {
  const ConstTensorView &mask = options.tree_mask, &indptr = options.tree_mask_indptr;
  if (!mask && !indptr) return;
  HEDDLE_CHECK(mask && indptr, "options.", mask ? "tree_mask_indptr" : "tree_mask",
               " is absent, expected both or none");
  Dim words("num words"), size("num_seqs + 1", num_seqs.value() + 1);
  check_shape("options.tree_mask", mask, {&words});
  check_dtype("options.tree_mask", mask, {DType::kInt32});
  check_unit_stride("options.tree_mask", mask);
  check_shape("options.tree_mask_indptr", indptr, {&size});
  check_dtype("options.tree_mask_indptr", indptr, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{"options.tree_mask", mask}, {"options.tree_mask_indptr", indptr}});
  if (ctx.device.type != DeviceType::kCpu) return;
  check_tree_mask_indptr(cpu::IndexArray(indptr), cpu::IndexArray(q_indptr), num_seqs.value(),
                         words.value());
}

/// Queries of the largest bundle of a call.
int max_bundle_of(const AttentionOptions& options, const PagedKv& cache, int group_size) {
  const bool has_codes = cache.dtype == DType::kFloat8E4M3;
  return std::min(static_cast<int>(options.max_bundle),
                  cuda::attention::max_decode_bundle(cache.head_dim, group_size, has_codes));
}

/// Checks the bundles of batch_decode. What they say is read on the CPU alone.
void check_bundles(const ExecContext& ctx, const AttentionOptions& options, int64_t num_queries,
                   const PagedKv& cache, int group_size) {
  const ConstTensorView& indptr = options.bundle_indptr;
  constexpr int kMost = cuda::attention::kMaxBundle;
  HEDDLE_CHECK(options.max_bundle >= 1 && options.max_bundle <= kMost, "options.max_bundle is ",
               options.max_bundle, ", expected 1 to ", kMost);
  HEDDLE_CHECK(indptr || options.max_bundle == 1, "options.max_bundle is ", options.max_bundle,
               ", but options.bundle_indptr is absent");
  if (!indptr) return;
  HEDDLE_CHECK(!options.rope,
               "options.bundle_indptr is given with options.rope, expected keys that come rotated");
  Dim size("num_bundles + 1");
  check_shape("options.bundle_indptr", indptr, {&size});
  HEDDLE_CHECK(size.value() >= (num_queries > 0 ? 2 : 1), "options.bundle_indptr has ",
               size.value(), " values, expected num_bundles + 1, with each query in a bundle");
  check_dtype("options.bundle_indptr", indptr, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{"options.bundle_indptr", indptr}});
  if (ctx.device.type != DeviceType::kCpu) return;
  const cpu::IndexArray starts(indptr);
  HEDDLE_CHECK(starts[0] == 0 && starts[size.value() - 1] == num_queries,
               "options.bundle_indptr goes from ", starts[0], " to ", starts[size.value() - 1],
               ", expected 0 to the number of queries, ", num_queries);
  const int most = max_bundle_of(options, cache, group_size);
  for (int64_t i = 0; i + 1 < size.value(); ++i) {
    const int64_t count = starts[i + 1] - starts[i];
    HEDDLE_CHECK(count >= 0 && count <= most, "options.bundle_indptr[", i + 1, "] is ",
                 starts[i + 1], ", expected ", starts[i], " to ", starts[i] + most);
  }
}

float scale_of(const AttentionOptions& options, int head_dim) {
  return options.sm_scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim)));
}

void run_on_cpu(const ExecContext& ctx, const AttentionArgs& args) {
  std::optional<cpu::IndexArray> starts;
  if (args.q_indptr != nullptr) starts.emplace(*args.q_indptr);
  check_used_pages(args.cache, args.table, args.num_seqs, starts, args.options.window_left);
  cpu::attention::run(ctx, args);
}

void run(const ExecContext& ctx, const char* op, const AttentionArgs& args) {
  if (ctx.device.type != DeviceType::kCuda) return run_on_cpu(ctx, args);
  if constexpr (kWithCuda) {
    const ScopedOperation operation(op);
    cuda::attention::run(ctx, op, args);
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

}  // namespace

void batch_prefill(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                   ConstTensorView q_indptr, const PagedKv& cache, const PageTable& table,
                   const AttentionOptions& options) {
  Dim num_seqs("num_seqs"), num_tokens("num_tokens");
  check_paged_kv(ctx, cache, table, num_seqs);
  const int64_t q_heads = check_rows(ctx, o, lse, q, num_tokens, cache);
  check_options(ctx, options, cache);
  check_lse(lse, num_tokens, q_heads);
  check_token_indptr("q_indptr", ctx, q_indptr, num_seqs, num_tokens);
  check_trees(ctx, options, num_seqs, q_indptr);
  HEDDLE_CHECK(!options.bundle_indptr && options.max_bundle == 1,
               "options.bundle_indptr or options.max_bundle is given, but q_indptr tells which "
               "queries batch_prefill reads together");
  run(ctx, "batch_prefill",
      {o, lse, q, &q_indptr, cache, table, options, num_tokens.value(), num_seqs.value(),
       static_cast<int>(q_heads / cache.num_kv_heads), scale_of(options, cache.head_dim)});
}

void batch_decode(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                  const PagedKv& cache, const PageTable& table, const AttentionOptions& options) {
  Dim num_seqs("num_seqs");
  check_paged_kv(ctx, cache, table, num_seqs);
  const int64_t q_heads = check_rows(ctx, o, lse, q, num_seqs, cache);
  check_options(ctx, options, cache);
  check_lse(lse, num_seqs, q_heads);
  HEDDLE_CHECK(!options.tree_mask && !options.tree_mask_indptr,
               "options.tree_mask is given, but a query of batch_decode is one token alone");
  const auto group_size = static_cast<int>(q_heads / cache.num_kv_heads);
  check_bundles(ctx, options, num_seqs.value(), cache, group_size);
  run(ctx, "batch_decode",
      {o, lse, q, nullptr, cache, table, options, num_seqs.value(), num_seqs.value(), group_size,
       scale_of(options, cache.head_dim),
       options.bundle_indptr ? options.bundle_indptr.size(0) - 1 : 0,
       max_bundle_of(options, cache, group_size)});
}

int64_t decode_bundle(DType cache_dtype, int64_t num_q_heads, int64_t num_kv_heads,
                      int64_t head_dim, int64_t window_left, int64_t kv_len, int64_t num_queries) {
  using namespace cuda::attention;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - kMaxBundle;
  HEDDLE_CHECK(num_kv_heads >= 1 && num_q_heads >= 1 && num_q_heads <= kMost &&
                   num_q_heads % num_kv_heads == 0,
               "num_q_heads is ", num_q_heads,
               ", expected a multiple of num_kv_heads = ", num_kv_heads);
  HEDDLE_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim, "head_dim is ", head_dim,
               ", expected 1 to ", kMaxHeadDim);
  HEDDLE_CHECK(window_left >= -1, "window_left is ", window_left, ", expected >= -1");
  HEDDLE_CHECK(kv_len >= 1 && kv_len <= kMost, "kv_len is ", kv_len, ", expected 1 to ", kMost);
  HEDDLE_CHECK(num_queries >= 1, "num_queries is ", num_queries, ", expected at least 1");
  const int max_together =
      max_decode_bundle(static_cast<int>(head_dim), static_cast<int>(num_q_heads / num_kv_heads),
                        cache_dtype == DType::kFloat8E4M3);
  const int64_t most = std::min<int64_t>(num_queries, max_together);
  constexpr int kMultiple = kDecodeWarps * kTileKeys;  // of codes no two are together
  const auto window = static_cast<int>(std::min(window_left, kMost));
  const auto begin_of = [&](int64_t i) {
    return first_tile_of(first_seen_key(static_cast<int>(kv_len + i), window));
  };
  const auto segment_of = [&](int64_t i) {
    return segment_keys(static_cast<int>(kv_len + i) - begin_of(i), kMultiple);
  };
  int64_t count = 1;
  while (count < most && begin_of(count) == begin_of(0) && segment_of(count) == segment_of(0)) {
    ++count;
  }
  return count;
}

size_t batch_decode_workspace_bytes(Device device, int64_t num_seqs, int64_t num_q_heads,
                                    int64_t head_dim) {
  constexpr int64_t kMaxHeads = 1 << 16;  // as many elements of a head, too
  check_extent("num_seqs", num_seqs);
  check_extent("num_q_heads", num_q_heads, kMaxHeads);
  check_extent("head_dim", head_dim, kMaxHeads);
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) {
      return cuda::attention::decode_workspace_bytes(device, num_seqs, num_q_heads, head_dim);
    }
  }
  return 0;
}

}  // namespace heddle
