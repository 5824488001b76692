#include "ops/verify/residual.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/verify/residual_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::verify::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 virtual lanes, whatever the vector width; see sum_chunks.
using D = hn::CappedTag<double, 16>;
using V = hn::Vec<D>;
constexpr int64_t kVirtualLanes = 16;
constexpr int64_t kLanes = int64_t{hn::MaxLanes(D())};
constexpr int64_t kVectors = kVirtualLanes / kLanes;

/// x where it is more than 0; 0 elsewhere and for NaN.
HWY_INLINE V positive(V x) { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(D())), x); }

HWY_INLINE V load_probabilities(const float* p) {
  const hn::Rebind<float, D> d32;
  return positive(hn::PromoteTo(D(), hn::LoadU(d32, p)));
}

/// The weights of kLanes tokens from `token` on, none of them rejected as one-hot. kNumQ: rows of
/// q, or -1: num_rejected.
template <int kNumQ>
HWY_INLINE V load_weights(const Residual& residual, int64_t token) {
  V w = load_probabilities(residual.p + token);
  const int num_q = kNumQ >= 0 ? kNumQ : residual.num_rejected;
  for (int k = 0; k < num_q; ++k) {
    const V q = load_probabilities(residual.q[k] + token);
    w = positive(hn::Sub(w, hn::Mul(hn::Set(D(), residual.masses[k]), q)));
  }
  return w;
}

HWY_INLINE double sum_lanes(const V* sums) {
  HWY_ALIGN double lanes[kVirtualLanes];
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[v], D(), lanes + v * kLanes);
  for (int64_t n = kVirtualLanes / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
}

/// The first group of 16 tokens from `begin` on that needs care: it holds a token rejected as
/// one-hot, or is cut by `end`.
int64_t next_careful_group(const Residual& residual, int64_t begin, int64_t end) {
  int64_t stop = begin + (end - begin) / kVirtualLanes * kVirtualLanes;
  if (!residual.one_hot) return stop;
  for (int k = 0; k < residual.num_rejected; ++k) {
    const int64_t token = residual.tokens[k];
    if (token >= begin && token < stop) stop = token / kVirtualLanes * kVirtualLanes;
  }
  return stop;
}

/// begin is a multiple of 16.
template <int kNumQ>
double sum_chunk(const Residual& residual, int64_t begin, int64_t end) {
  V sums[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
  int64_t i = begin;
  while (i < end) {
    const int64_t stop = next_careful_group(residual, i, end);
    for (; i < stop; i += kVirtualLanes) {
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[v] = hn::Add(sums[v], load_weights<kNumQ>(residual, i + v * kLanes));
      }
    }
    if (i == end) break;
    HWY_ALIGN double weights[kVirtualLanes] = {};
    const int64_t next = end - i < kVirtualLanes ? end : i + kVirtualLanes;
    for (int64_t t = i; t < next; ++t) weights[t - i] = weight_of(residual, t);
    for (int64_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], hn::Load(D(), weights + v * kLanes));
    }
    i = next;
  }
  return sum_lanes(sums);
}

template <int kNumQ>
void sum_chunks_of(const Residual& residual, ChunkSums& sums, int64_t first, int64_t end) {
  for (int64_t c = first; c < end; ++c) {
    const int64_t from = c * sums.chunk_size, left = residual.vocab_size - from;
    const int64_t to = left < sums.chunk_size ? residual.vocab_size : from + sums.chunk_size;
    sums.sums[c] = sum_chunk<kNumQ>(residual, from, to);
  }
}

void sum_chunks(const Residual& residual, ChunkSums& sums, int64_t first, int64_t end) {
  const int num_q = residual.one_hot ? 0 : residual.num_rejected;
  if (num_q == 0) return sum_chunks_of<0>(residual, sums, first, end);
  if (num_q == 1) return sum_chunks_of<1>(residual, sums, first, end);
  sum_chunks_of<-1>(residual, sums, first, end);
}

}  // namespace heddle::cpu::verify::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::verify {
HWY_EXPORT(sum_chunks);
void sum_chunks(const Residual& residual, ChunkSums& sums, int64_t first, int64_t end) {
  HWY_DYNAMIC_DISPATCH(sum_chunks)(residual, sums, first, end);
}
}  // namespace heddle::cpu::verify
#endif
