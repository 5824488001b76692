#include <algorithm>
#include <optional>

#include "heddle/config.h"
#include "heddle/core/dispatch.h"
#include "heddle/ops/kv_cache.h"

#include "core/scoped_operation.h"
#include "ops/attention/kv_append/new_tokens.h"
#include "ops/attention/kv_append/run_cuda.h"
#include "ops/attention/paged/page_validate.h"

namespace heddle {
namespace {

using cpu::attention::NewTokens;
using cpu::attention::PageWalk;
using cpu::attention::TokenPlace;

constexpr int64_t kElementsPerTask =
    32768;  // some 10 us of copying: less is not worth another thread

template <class From, class To>
void store_token(const PagedKv& cache, const PageWalk& walk, const NewTokens& tokens, int64_t seq,
                 int64_t t) {
  const int64_t position = walk.kv_len(seq) - (tokens.begin(seq + 1) - t);
  if (position < 0) return;  // more new tokens than the sequence is long; it may have no pages
  const TokenPlace<To> place(cache, walk, seq, position);
  const From* k = tokens.k.data<From>() + t * tokens.k.stride(0);
  const From* v = tokens.v.data<From>() + t * tokens.v.stride(0);
  for (int h = 0; h < cache.num_kv_heads; ++h) {
    place.store_key(h, k + h * tokens.k.stride(1));
    place.store_value(h, v + h * tokens.v.stride(1));
  }
}

void store_tokens(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                  const NewTokens& tokens) {
  const PageWalk walk(cache, table);
  const int64_t first = tokens.begin(0), num_tokens = tokens.begin(tokens.num_seqs) - first;
  const int64_t token_elements = 2 * int64_t{cache.num_kv_heads} * cache.head_dim;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / token_elements);
  dispatch_dtype<float, half, bfloat16>(tokens.k.dtype(), "kv_init", [&]<class From>() {
    dispatch_dtype<float, half, bfloat16, float8_e4m3>(cache.dtype, "kv_init", [&]<class To>() {
      parallel_for(ctx, num_tokens, grain, [&](int64_t begin, int64_t end) {
        for (int64_t t = first + begin, seq = tokens.seq_of(t); t < first + end; ++t) {
          while (tokens.begin(seq + 1) <= t) ++seq;
          store_token<From, To>(cache, walk, tokens, seq, t);
        }
      });
    });
  });
}

void append_on_cuda(const ExecContext& ctx, const cuda::attention::AppendArgs& args) {
  if constexpr (kWithCuda) {
    const ScopedOperation operation("kv_append");
    cuda::attention::run_append(ctx, args);
  } else {
    throw_error(ErrorCode::kUnsupported, "kv_append: built without CUDA");
  }
}

}  // namespace

void check_new_tokens(const ExecContext& ctx, const PagedKv& cache, const ConstTensorView& k,
                      const ConstTensorView& v, Dim& num_tokens) {
  Dim heads("num_kv_heads", cache.num_kv_heads), head_dim("head_dim", cache.head_dim);
  check_shape("k", k, {&num_tokens, &heads, &head_dim});
  check_shape("v", v, {&num_tokens, &heads, &head_dim});
  check_dtype("k", k, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("v", v, {k.dtype()});
  check_unit_stride("k", k);
  check_unit_stride("v", v);
  check_device(ctx, {{"k", k}, {"v", v}});
}

void kv_init(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
             ConstTensorView k, ConstTensorView v, ConstTensorView seq_indptr) {
  Dim num_seqs("num_seqs"), num_tokens("num_tokens");
  check_paged_kv(ctx, cache, table, num_seqs);
  check_new_tokens(ctx, cache, k, v, num_tokens);
  check_token_indptr("seq_indptr", ctx, seq_indptr, num_seqs, num_tokens);
  if (ctx.device.type == DeviceType::kCuda)
    return append_on_cuda(ctx, {cache, table, k, v, seq_indptr});
  const cpu::IndexArray starts(seq_indptr);
  check_used_pages(cache, table, num_seqs.value(), starts, 0);
  store_tokens(ctx, cache, table, {k, v, starts, num_seqs.value()});
}

void kv_append(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
               ConstTensorView k, ConstTensorView v) {
  Dim num_seqs("num_seqs");
  check_paged_kv(ctx, cache, table, num_seqs);
  check_new_tokens(ctx, cache, k, v, num_seqs);
  if (ctx.device.type == DeviceType::kCuda) return append_on_cuda(ctx, {cache, table, k, v, {}});
  check_used_pages(cache, table, num_seqs.value(), std::nullopt, 0);
  store_tokens(ctx, cache, table, {k, v, std::nullopt, num_seqs.value()});
}

}  // namespace heddle
