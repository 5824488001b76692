// The online softmax of one row: exponential, soft cap, running maximum and sum. Include inside a
// file that Highway compiles once per target.

#if defined(HEDDLE_OPS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_ATTENTION_SOFTMAX_INL_H_
#undef HEDDLE_OPS_ATTENTION_SOFTMAX_INL_H_
#else
#define HEDDLE_OPS_ATTENTION_SOFTMAX_INL_H_
#endif

#include "core/math.h"
#include "cpu/soft_cap-inl.h"
#include "cpu/vec-inl.h"
#include "ops/attention/cpu/attention_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

/// exp(x) for x <= 0 with an error below 1 ulp; 0 below -87, where f32 would become subnormal; NaN
/// for NaN. x = n ln 2 + r with |r| <= ln 2 / 2, and exp(r) = 1 + r + r^2 P(r): P is the minimax
/// polynomial of degree 4, whose error is 0.06 ulp.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const hn::Rebind<int32_t, D> di;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const auto nf = hn::ConvertTo(d, n);
  auto r = hn::NegMulAdd(nf, hn::Set(d, 0x1.62e4p-1f),
                         x);  // the upper bits of ln 2: the product is exact
  r = hn::NegMulAdd(nf, hn::Set(d, 0x1.7f7d1cp-20f), r);  // the rest of ln 2
  auto p = hn::Set(d, 0.00138145378f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836874532f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416683908f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665204f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.499999934f));
  const auto exp_r = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(exp_r, power));
}

/// The state of a row between tiles. The sum of weights is kept in kKeyLanes virtual lanes, key j
/// in lane j % kKeyLanes.
struct RowSoftmax {
  float max;
  alignas(64) float sum[kKeyLanes];
};

/// The 16 lanes added up as a fixed tree: 8 apart, 4 apart, 2 apart, neighbours.
HWY_INLINE float sum_lanes(const float* lanes) {
  float sum[kKeyLanes];
  for (int i = 0; i < kKeyLanes; ++i) sum[i] = lanes[i];
  for (int half = kKeyLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

/// Caps and masks the scores s [end) of one row at the keys [begin, end) of a tile, and returns
/// their maximum. Scores outside [lo, hi) become -inf, whatever they hold. begin and end are
/// multiples of kKeyLanes.
template <class D>
HWY_INLINE float mask_scores(D d, float soft_cap, int lo, int hi, int begin, int end, float* s) {
  const int step = static_cast<int>(hn::Lanes(d));
  const hn::Rebind<int32_t, D> di;
  const auto minus_inf = hn::Set(d, kMinusInf);
  auto max = minus_inf;
  for (int c = begin; c < end; c += step) {
    auto v = hn::LoadU(d, s + c);
    if (soft_cap > 0.0f) {
      v = cpu::HWY_NAMESPACE::soft_cap(d, v, soft_cap);
    }
    if (c < lo || c + step > hi) {
      const auto key = hn::Iota(di, c);
      const auto visible = hn::And(hn::VecFromMask(di, hn::Gt(key, hn::Set(di, lo - 1))),
                                   hn::VecFromMask(di, hn::Lt(key, hn::Set(di, hi))));
      v = hn::IfThenElse(hn::RebindMask(d, hn::MaskFromVec(visible)), v, minus_inf);
    }
    hn::StoreU(v, d, s + c);
    max = hn::Max(max, v);
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

/// Takes the scores of a tile into a row: s becomes the weights exp(s - max), and the earlier sums
/// of the row (o, of o_size floats, and state.sum) shrink where the maximum grew.
template <class D>
HWY_INLINE void update_row(D d, float soft_cap, int lo, int hi, float* s, RowSoftmax& state,
                           float* o, int o_size) {
  const int step = static_cast<int>(hn::Lanes(d));
  const int begin = lo / kKeyLanes * kKeyLanes;
  const int end = round_up(hi, kKeyLanes);
  const float tile_max = mask_scores(d, soft_cap, lo, hi, begin, end, s);
  const float old_max = state.max;
  const float max = tile_max > old_max ? tile_max : old_max;
  const float shift = max == kMinusInf ? 0.0f : max;  // all scores -inf: the weights are 0, not NaN
  if (max != old_max) {
    const auto shrink = exp_nonpositive(d, hn::Set(d, old_max - shift));
    for (int i = 0; i < o_size; i += step)
      hn::StoreU(hn::Mul(hn::LoadU(d, o + i), shrink), d, o + i);
    for (int i = 0; i < kKeyLanes; i += step) {
      hn::StoreU(hn::Mul(hn::LoadU(d, state.sum + i), shrink), d, state.sum + i);
    }
    state.max = max;
  }
  for (int i = 0; i < kKeyLanes; i += step) {
    auto sum = hn::LoadU(d, state.sum + i);
    for (int c = begin + i; c < end; c += kKeyLanes) {
      const auto weight = exp_nonpositive(d, hn::Sub(hn::LoadU(d, s + c), hn::Set(d, shift)));
      hn::StoreU(weight, d, s + c);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(sum, d, state.sum + i);
  }
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
