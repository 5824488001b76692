#include "ops/sampling/draw/draw_kernels.h"
#include "ops/sampling/draw/weight.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sampling/draw/draw_cpu.cpp"
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

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = int64_t{hn::MaxLanes(D())};

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

/// heddle::sampling::weight_of, lane by lane.
struct Softmax {
  V largest, scale;

  HWY_INLINE V weight(V logit) const {
    using heddle::sampling::Exponent;
    const D d;
    const hn::RebindToSigned<D> d_bits;
    constexpr Exponent kExponent;
    const V x = without_nan(logit), magic = hn::Set(d, Exponent::kMagic);
    const V below = hn::IfThenElse(hn::Eq(x, largest), hn::Zero(d), hn::Sub(x, largest));
    const V y = hn::Max(hn::Mul(below, scale), hn::Set(d, Exponent::kLeast));
    const V rounded = hn::Add(y, magic);
    const V f = hn::Sub(y, hn::Sub(rounded, magic));
    V p = hn::Set(d, kExponent.a[Exponent::kDegree - 1]);
    for (int i = Exponent::kDegree - 2; i >= 0; --i) {
      p = hn::MulAdd(p, f, hn::Set(d, kExponent.a[i]));
    }
    p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
    const auto power = hn::ShiftLeft<23>(hn::BitCast(d_bits, rounded));
    return hn::BitCast(d, hn::Add(hn::BitCast(d_bits, p), power));
  }
};

/// Adds up units: bits of weight + magic, and how many times those of magic are among them.
class UnitTotal {
 public:
  explicit HWY_INLINE UnitTotal(double magic)
      : magic_(magic), low_(hn::Zero(D64Bits())), high_(hn::Zero(D64Bits())) {}

  HWY_INLINE void add(V weight) {
    const hn::Half<D> half;
    low_ = hn::Add(low_, magic_bits_of(hn::LowerHalf(half, weight)));
    high_ = hn::Add(high_, magic_bits_of(hn::UpperHalf(half, weight)));
    num_lanes_ += uint64_t{kLanes};
  }
  HWY_INLINE uint64_t total() const {
    uint64_t magic_bits;
    hwy::CopySameSize(&magic_, &magic_bits);
    const D64Bits d;
    // Sums wrap around, which SumOfLanes does in signed numbers.
    HWY_ALIGN uint64_t lanes[hn::MaxLanes(D64Bits())];
    hn::Store(hn::Add(low_, high_), d, lanes);
    uint64_t sum = 0;
    for (const uint64_t lane : lanes) sum += lane;
    return sum - num_lanes_ * magic_bits;
  }

 private:
  using D64 = hn::Repartition<double, D>;
  using D64Bits = hn::RebindToUnsigned<D64>;

  HWY_INLINE hn::Vec<D64Bits> magic_bits_of(hn::Vec<hn::Half<D>> weights) const {
    const D64 d;
    const auto sum = hn::Add(hn::PromoteTo(d, weights), hn::Set(d, magic_));
    return hn::BitCast(D64Bits(), sum);
  }

  double magic_;
  hn::Vec<D64Bits> low_, high_;
  uint64_t num_lanes_ = 0;
};

uint64_t sum_weights(const LogitRow& row, float largest, float temperature, float* weights) {
  const D d;
  const Softmax softmax{hn::Set(d, largest), hn::Set(d, heddle::sampling::scale_of(temperature))};
  UnitTotal sum(heddle::sampling::units_magic(row.vocab_size));
  int64_t i = 0;
  for (; i + kLanes <= row.vocab_size; i += kLanes) {
    const V w = softmax.weight(hn::LoadU(d, row.logits + i));
    if (weights != nullptr) hn::StoreU(w, d, weights + i);
    sum.add(w);
  }
  if (const int64_t left = row.vocab_size - i; left > 0) {
    const V w = softmax.weight(load_tail(row.logits + i, left));
    if (weights != nullptr) store_f32_n(d, w, weights + i, size_t(left));
    sum.add(w);
  }
  return sum.total();
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
uint64_t sum_weights(const LogitRow& row, float largest, float temperature, float* weights) {
  return HWY_DYNAMIC_DISPATCH(sum_weights)(row, largest, temperature, weights);
}
int64_t keys_of_weights(const LogitRow& row, const float* weights, float low, float high,
                        OrderKey* keys) {
  return HWY_DYNAMIC_DISPATCH(keys_of_weights)(row, weights, low, high, keys);
}
}  // namespace heddle::cpu::sampling
#endif
