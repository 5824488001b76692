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
namespace heddle::cpu::HWY_NAMESPACE {
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

/// The weights of kLanes tokens from `token` on, none of them rejected as one-hot. kNumQ: rows of q, or -1: num_rejected.
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

/// Whether a token of [begin, end) is rejected as one-hot.
bool holds_rejected_token(const Residual& residual, int64_t begin, int64_t end) {
  if (!residual.one_hot) return false;
  for (int k = 0; k < residual.num_rejected; ++k) {
    if (residual.tokens[k] >= begin && residual.tokens[k] < end) return true;
  }
  return false;
}

template <int kNumQ>
double sum_chunk(const Residual& residual, int64_t begin, int64_t end) {
  const bool careful = holds_rejected_token(residual, begin, end);
  V sums[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
  for (int64_t i = begin; i < end; i += kVirtualLanes) {
    const int64_t next = i + kVirtualLanes;
    if (next <= end && !(careful && holds_rejected_token(residual, i, next))) {
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[v] = hn::Add(sums[v], load_weights<kNumQ>(residual, i + v * kLanes));
      }
    } else {  // the end of the vocabulary, or a token that weighs nothing among those that do
      HWY_ALIGN double weights[kVirtualLanes] = {};
      for (int64_t t = i; t < end && t < next; ++t) weights[t - i] = weight_of(residual, t);
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[v] = hn::Add(sums[v], hn::Load(D(), weights + v * kLanes));
      }
    }
  }
  return sum_lanes(sums);
}

template <int kNumQ>
void sum_all_chunks(const Residual& residual, ChunkSums& sums) {
  sums.total = 0.0;
  for (int64_t c = 0; c < sums.num_chunks; ++c) {
    const int64_t begin = c * sums.chunk_size, left = residual.vocab_size - begin;
    const int64_t end = left < sums.chunk_size ? residual.vocab_size : begin + sums.chunk_size;
    sums.sums[c] = sum_chunk<kNumQ>(residual, begin, end);
    sums.total += sums.sums[c];
  }
}

void sum_chunks(const Residual& residual, ChunkSums& sums) {
  const int num_q = residual.one_hot ? 0 : residual.num_rejected;
  if (num_q == 0) return sum_all_chunks<0>(residual, sums);
  if (num_q == 1) return sum_all_chunks<1>(residual, sums);
  sum_all_chunks<-1>(residual, sums);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(sum_chunks);
void sum_chunks(const Residual& residual, ChunkSums& sums) {
  HWY_DYNAMIC_DISPATCH(sum_chunks)(residual, sums);
}
}  // namespace heddle::cpu
#endif
