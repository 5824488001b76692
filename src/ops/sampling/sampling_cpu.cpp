#include "ops/sampling/sampling_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sampling/sampling_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/vec-inl.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::sampling::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

// 16 virtual lanes, whatever the vector width: element i belongs to lane i % 16.
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kVirtualLanes = 16;
constexpr int64_t kLanes = int64_t{hn::MaxLanes(D())};
constexpr int64_t kVectors = kVirtualLanes / kLanes;
constexpr int64_t kBlock = 64 * kVirtualLanes;  // elements per f32 sum

HWY_INLINE V minus_infinity() { return hn::Neg(hn::Inf(D())); }

HWY_INLINE V without_nan(V x) { return hn::IfThenElse(hn::Eq(x, x), x, minus_infinity()); }

/// The n <= kLanes elements at p, then -infinity.
HWY_INLINE V load_tail(const float* p, int64_t n) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(minus_infinity(), D(), lanes);
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::Load(D(), lanes);
}

float largest_logit(const LogitRow& row) {
  const D d;
  V best[4] = {minus_infinity(), minus_infinity(), minus_infinity(), minus_infinity()};
  const auto larger = [](V x, V y) {
    return hn::IfThenElse(hn::Gt(x, y), x, y);
  };  // y unless x > y
  int64_t i = 0;
  for (; i + 4 * kLanes <= row.vocab_size; i += 4 * kLanes) {
    for (int64_t v = 0; v < 4; ++v) {
      best[v] = larger(hn::LoadU(d, row.logits + i + v * kLanes), best[v]);
    }
  }
  for (; i < row.vocab_size; i += kLanes) {
    const int64_t left = row.vocab_size - i;
    const V x = left < kLanes ? load_tail(row.logits + i, left) : hn::LoadU(d, row.logits + i);
    best[0] = larger(x, best[0]);
  }
  const V all = larger(larger(best[0], best[1]), larger(best[2], best[3]));
  return hn::GetLane(hn::MaxOfLanes(d, all));
}

int64_t first_token_with(const LogitRow& row, float largest) {
  const D d;
  const V wanted = hn::Set(d, largest);
  int64_t i = 0;
  for (; i + kLanes <= row.vocab_size; i += kLanes) {
    const intptr_t found = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, row.logits + i), wanted));
    if (found >= 0) return i + found;
  }
  while (i < row.vocab_size && row.logits[i] != largest) ++i;
  return i;
}

struct Softmax {
  V largest, temperature;

  HWY_INLINE V weight(V logit) const {
    const D d;
    const V x = without_nan(logit);
    const V below = hn::IfThenElse(hn::Eq(x, largest), hn::Zero(d), hn::Sub(x, largest));
    return hn::Exp(d, hn::Div(below, temperature));
  }
};

/// Adds up the 16 lanes as a tree.
HWY_INLINE float sum_lanes(const V* sums) {
  HWY_ALIGN float lanes[kVirtualLanes];
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[v], D(), lanes + v * kLanes);
  for (int64_t n = kVirtualLanes / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
}

/// The sum over [begin, end), at most kBlock elements. Elements past the end weigh 0.
float sum_block(const LogitRow& row, const Softmax& softmax, int64_t begin, int64_t end,
                float* weights) {
  const D d;
  V sums[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t i = begin; i < end; i += kVirtualLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t first = i + v * kLanes;
      if (first + kLanes <= end) {
        const V w = softmax.weight(hn::LoadU(d, row.logits + first));
        if (weights != nullptr) hn::StoreU(w, d, weights + first);
        sums[v] = hn::Add(sums[v], w);
      } else if (first < end) {
        const V w = softmax.weight(load_tail(row.logits + first, end - first));
        if (weights != nullptr) store_f32_n(d, w, weights + first, size_t(end - first));
        sums[v] = hn::Add(sums[v], w);
      }
    }
  }
  return sum_lanes(sums);
}

double sum_weights(const LogitRow& row, float largest, float temperature, float* weights) {
  const D d;
  // Bounded, so that -infinity / temperature stays that.
  const float bounded = temperature < 1e30f ? temperature : 1e30f;
  const Softmax softmax{hn::Set(d, largest), hn::Set(d, bounded)};
  double sum = 0.0;
  for (int64_t begin = 0; begin < row.vocab_size; begin += kBlock) {
    const int64_t left = row.vocab_size - begin;
    sum += double{sum_block(row, softmax, begin, begin + (left < kBlock ? left : kBlock), weights)};
  }
  return sum;
}

/// Larger logits give smaller keys: the bits of a float ascend with its value once those of a
/// negative one are inverted and the sign bit of the others is set. Adding 0 makes -0 equal to 0.
HWY_INLINE OrderKey order_key(float logit, int64_t token) {
  const float x = logit + 0.0f;
  uint32_t bits;
  hwy::CopySameSize(&x, &bits);
  const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{~ascending} << 32 | uint64_t(token);
}

int64_t keys_of_weights(const LogitRow& row, const float* weights, float low, float high,
                        OrderKey* keys) {
  const D d;
  const V low_bound = hn::Set(d, low), high_bound = hn::Set(d, high);
  int64_t num_keys = 0;
  for (int64_t begin = 0; begin < row.vocab_size; begin += kLanes) {
    const int64_t left = row.vocab_size - begin, n = left < kLanes ? left : kLanes;
    if (n == kLanes) {
      const V w = hn::LoadU(d, weights + begin);
      if (hn::AllFalse(d, hn::And(hn::Ge(w, low_bound), hn::Lt(w, high_bound)))) continue;
    }
    for (int64_t i = begin; i < begin + n; ++i) {
      const bool within = weights[i] >= low && weights[i] < high;
      if (within) keys[num_keys++] = order_key(row.logits[i], i);
    }
  }
  return num_keys;
}

}  // namespace heddle::cpu::sampling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::sampling {
HWY_EXPORT(largest_logit);
HWY_EXPORT(first_token_with);
HWY_EXPORT(sum_weights);
HWY_EXPORT(keys_of_weights);

float largest_logit(const LogitRow& row) { return HWY_DYNAMIC_DISPATCH(largest_logit)(row); }
int64_t first_token_with(const LogitRow& row, float largest) {
  return HWY_DYNAMIC_DISPATCH(first_token_with)(row, largest);
}
double sum_weights(const LogitRow& row, float largest, float temperature, float* weights) {
  return HWY_DYNAMIC_DISPATCH(sum_weights)(row, largest, temperature, weights);
}
int64_t keys_of_weights(const LogitRow& row, const float* weights, float low, float high,
                        OrderKey* keys) {
  return HWY_DYNAMIC_DISPATCH(keys_of_weights)(row, weights, low, high, keys);
}
}  // namespace heddle::cpu::sampling
#endif
