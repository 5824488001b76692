#include <algorithm>
#include <optional>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/ops/kv_cache.h"

#include "core/scoped_operation.h"
#include "ops/attention/kv_append/new_tokens.h"
#include "ops/attention/kv_append/rope_kv_append_kernels.h"
#include "ops/attention/kv_append/run_cuda.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/check_rope.h"
#include "ops/attention/rope/rotary_angles.h"

namespace heddle {
namespace {

using cpu::attention::NewTokens;
using cpu::attention::PageWalk;
using cpu::attention::RotaryAngles;
using cpu::attention::TokenPlace;

constexpr int64_t kRopeElementsPerTask = 8192;  // some 10 us of copying, turning, sines and cosines
constexpr int kMaxHeadDim = 2 * RotaryAngles::kMaxPairs;

/// A call on the CPU.
struct RopeAppend {
  TensorView q;
  const PagedKv& cache;
  const PageWalk walk;
  const NewTokens tokens;
  std::optional<cpu::IndexArray> positions;
  const RotaryAngles angles;

  template <class From, class To>
  void store_token(int64_t seq, int64_t t) const {
    const int64_t place = walk.kv_len(seq) - (tokens.begin(seq + 1) - t);
    if (place < 0) return;  // more new tokens than the sequence is long; it may have no pages
    float cos[RotaryAngles::kMaxPairs], sin[RotaryAngles::kMaxPairs];
    angles.at(positions ? (*positions)[t] : place, cos, sin);
    for (int64_t h = 0; q && h < q.size(1); ++h) {
      From* x = q.data<From>() + t * q.stride(0) + h * q.stride(1);
      cpu::attention::rotate_head(x, cos, sin, angles.num_pairs, cache.head_dim, x);
    }
    const TokenPlace<To> stored(cache, walk, seq, place);
    const From* k = tokens.k.data<From>() + t * tokens.k.stride(0);
    const From* v = tokens.v.data<From>() + t * tokens.v.stride(0);
    From turned[kMaxHeadDim];
    for (int h = 0; h < cache.num_kv_heads; ++h) {
      cpu::attention::rotate_head(k + h * tokens.k.stride(1), cos, sin, angles.num_pairs,
                                  cache.head_dim, turned);
      stored.store_key(h, turned);
      stored.store_value(h, v + h * tokens.v.stride(1));
    }
  }

  template <class From, class To>
  void run(const ExecContext& ctx) const {
    const int64_t first = tokens.begin(0), num_tokens = tokens.begin(tokens.num_seqs) - first;
    const int64_t heads = 2 * int64_t{cache.num_kv_heads} + (q ? q.size(1) : 0);
    const int64_t grain = std::max<int64_t>(1, kRopeElementsPerTask / (heads * cache.head_dim));
    parallel_for(ctx, num_tokens, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = first + begin, seq = tokens.seq_of(t); t < first + end; ++t) {
        while (tokens.begin(seq + 1) <= t) ++seq;
        store_token<From, To>(seq, t);
      }
    });
  }
};

}  // namespace

void rope_kv_append(const ExecContext& ctx, TensorView q, const PagedKv& cache,
                    const PageTable& table, ConstTensorView k, ConstTensorView v,
                    ConstTensorView seq_indptr, ConstTensorView positions, const RopeParams& rope) {
  Dim num_seqs("num_seqs"), num_tokens("num_tokens"), q_heads("num_q_heads");
  check_paged_kv(ctx, cache, table, num_seqs);
  check_new_tokens(ctx, cache, k, v, seq_indptr ? num_tokens : num_seqs);
  if (seq_indptr) {
    check_token_indptr("seq_indptr", ctx, seq_indptr, num_seqs, num_tokens);
  } else {
    num_tokens.bind(num_seqs.value());
  }
  if (cache.head_dim > kMaxHeadDim) {
    throw_error(ErrorCode::kUnsupported, "head_dim is ", cache.head_dim, ", supported: up to ",
                kMaxHeadDim);
  }
  if (q) {
    Dim head_dim("head_dim", cache.head_dim);
    check_shape("q", q, {&num_tokens, &q_heads, &head_dim});
    check_dtype("q", q, {k.dtype()});
    check_unit_stride("q", q);
  }
  if (positions) {
    check_shape("positions", positions, {&num_tokens});
    check_dtype("positions", positions, {DType::kInt32, DType::kInt64});
  }
  check_device(ctx, {{"q", q}, {"positions", positions}});
  check_rope(ctx, "rope", rope, cache.head_dim);
  if (ctx.device.type == DeviceType::kCuda) {
    if constexpr (kWithCuda) {
      const ScopedOperation operation("rope_kv_append");
      return cuda::attention::run_rope_append(ctx, {cache, table, k, v, seq_indptr}, q, positions,
                                              rope);
    } else {
      throw_error(ErrorCode::kUnsupported, "rope_kv_append: built without CUDA");
    }
  }
  std::optional<cpu::IndexArray> starts, places;
  if (seq_indptr) starts.emplace(seq_indptr);
  if (positions) places.emplace(positions);
  check_used_pages(cache, table, num_seqs.value(), starts, 0);
  const RopeAppend call{q,
                        cache,
                        PageWalk(cache, table),
                        NewTokens{k, v, starts, num_seqs.value()},
                        places,
                        RotaryAngles(rope, cache.head_dim)};
  dispatch_dtype<float, half, bfloat16>(k.dtype(), "rope_kv_append", [&]<class From>() {
    dispatch_dtype<float, half, bfloat16, float8_e4m3>(
        cache.dtype, "rope_kv_append", [&]<class To>() { call.run<From, To>(ctx); });
  });
}

}  // namespace heddle
