#include "ops/norm/rms_norm_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/rms_norm_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::norm::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

// At most 16 lanes, so that four sums of 16 virtual lanes are whole vectors on every target.
using D = hn::CappedTag<float, 16>;
constexpr int64_t kVirtualLanes = 16, kBlock = 4 * kVirtualLanes;
constexpr int64_t kVectorsPerBlock = kBlock / int64_t{hn::MaxLanes(D())};

/// The 64 running sums: element i of the row belongs to sum i % 64, whatever the vector width.
struct SquareSums {
  hn::Vec<D> sums[kVectorsPerBlock];
};

template <class T>
HWY_INLINE void add_squares(const T* HWY_RESTRICT x, SquareSums& s) {
  const D d;
  for (int64_t v = 0; v < kVectorsPerBlock; ++v) {
    const auto values = load_f32(d, x + v * int64_t(hn::Lanes(d)));
    s.sums[v] = hn::MulAdd(values, values, s.sums[v]);
  }
}

/// Adds the 64 sums as a tree that halves their number in each step.
HWY_INLINE float sum_tree(const SquareSums& s) {
  const D d;
  HWY_ALIGN float sums[kBlock];
  for (int64_t v = 0; v < kVectorsPerBlock; ++v) {
    hn::Store(s.sums[v], d, sums + v * int64_t(hn::Lanes(d)));
  }
  for (int64_t n = kBlock / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; ++i) sums[i] += sums[i + n];
  }
  return sums[0];
}

/// sum_i x[i]^2. The tail takes part as a block padded with zeros, which leave every sum as it is.
template <class T>
float sum_of_squares(const T* HWY_RESTRICT x, int64_t n) {
  const D d;
  SquareSums s;
  for (int64_t v = 0; v < kVectorsPerBlock; ++v) s.sums[v] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) add_squares(x + i, s);
  if (i < n) {
    T tail[kBlock] = {};
    for (int64_t j = 0; i + j < n; ++j) tail[j] = x[i + j];
    add_squares(tail, s);
  }
  return sum_tree(s);
}

/// What a row's elements are multiplied by, one after the other.
struct RowFactors {
  float rstd, weight_offset;
  float inverse_scale;  // of f8e4m3
};

/// (x * rstd) * (weight_offset + w)
HWY_INLINE hn::Vec<D> normalised(hn::Vec<D> x, hn::Vec<D> w, const RowFactors& row) {
  const D d;
  return hn::Mul(hn::Mul(x, hn::Set(d, row.rstd)), hn::Add(hn::Set(d, row.weight_offset), w));
}
/// The same as what O rounds.
template <class O>
HWY_INLINE hn::Vec<D> output_value(hn::Vec<D> x, hn::Vec<D> w, const RowFactors& row) {
  const auto v = normalised(x, w, row);
  if constexpr (sizeof(O) == 1) return hn::Mul(v, hn::Set(D(), row.inverse_scale));
  return v;
}

/// output[i] = O(output_value(input[i], weight[i]))
template <class O, class T, class W>
void scale_row(O* output, const T* input, const W* weight, int64_t n, const RowFactors& row) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store_f32(d, output_value<O>(load_f32(d, input + i), load_f32(d, weight + i), row), output + i);
  }
  if (i < n) {
    const size_t left = size_t(n - i);
    store_f32_n(
        d, output_value<O>(load_f32_n(d, input + i, left), load_f32_n(d, weight + i, left), row),
        output + i, left);
  }
}

/// max_i |normalised(input[i], weight[i])| over what is no NaN
template <class T, class W>
float largest_of_row(const T* input, const W* weight, int64_t n, const RowFactors& row) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto largest = hn::Zero(d);
  const auto take = [&](hn::Vec<D> v) {
    const auto size = hn::Abs(v);
    largest = hn::IfThenElse(hn::Gt(size, largest), size, largest);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    take(normalised(load_f32(d, input + i), load_f32(d, weight + i), row));
  }
  if (i < n) {
    const size_t left = size_t(n - i);
    // Zeros after the row: an element 0 * rstd is 0, or NaN where rstd is infinite.
    take(normalised(load_f32_n(d, input + i, left), load_f32_n(d, weight + i, left), row));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// The scale of a row of f8e4m3: given, or of the row's largest value, which is then written.
template <class T, class W>
float row_scale(const T* input, const W* weight, int64_t row, const RowFactors& factors,
                const RmsNormRun& run) {
  if (run.scale.fixed != nullptr) return *run.scale.fixed;
  const float scale = largest_of_row(input, weight, run.width, factors) / kMaxFp8;
  run.scale.per_row[row] = scale > kMinFp8Scale ? scale : kMinFp8Scale;
  return run.scale.per_row[row];
}

/// residual[i] = T(f32(residual[i]) + f32(input[i]))
template <class T>
void add_row(T* residual, const T* input, int64_t n) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store_f32(d, hn::Add(load_f32(d, residual + i), load_f32(d, input + i)), residual + i);
  }
  if (i < n) {
    const size_t left = size_t(n - i);
    store_f32_n(d, hn::Add(load_f32_n(d, residual + i, left), load_f32_n(d, input + i, left)),
                residual + i, left);
  }
}

template <class T, class W>
void rms_norm_rows(const RmsNormRun& run) {
  const hn::CappedTag<float, 1> d1;
  const W* weight = reinterpret_cast<const W*>(run.weight);
  for (int64_t row = 0; row < run.num_rows; ++row) {
    std::byte* output = run.output + row * run.output_stride;
    const T* input = reinterpret_cast<const T*>(run.input + row * run.input_stride);
    if (run.residual != nullptr) {
      T* residual = reinterpret_cast<T*>(run.residual + row * run.residual_stride);
      add_row(residual, input, run.width);
      input = residual;
    }
    const float mean = sum_of_squares(input, run.width) / static_cast<float>(run.width);
    const float rms = hn::GetLane(hn::Sqrt(hn::Set(d1, mean + run.epsilon)));
    RowFactors factors{1.0f / rms, run.weight_offset, 1.0f};
    if (run.output_dtype == DType::kFloat8E4M3) {
      factors.inverse_scale = 1.0f / row_scale(input, weight, row, factors, run);
      scale_row(reinterpret_cast<float8_e4m3*>(output), input, weight, run.width, factors);
    } else if (sizeof(T) == 4 && run.output_dtype == DType::kFloat16) {
      scale_row(reinterpret_cast<half*>(output), input, weight, run.width, factors);
    } else if (sizeof(T) == 4 && run.output_dtype == DType::kBFloat16) {
      scale_row(reinterpret_cast<bfloat16*>(output), input, weight, run.width, factors);
    } else {
      scale_row(reinterpret_cast<T*>(output), input, weight, run.width, factors);
    }
  }
}

template <class T>
void rms_norm_weight(const RmsNormRun& run) {
  run.weight_dtype == run.dtype ? rms_norm_rows<T, T>(run) : rms_norm_rows<T, float>(run);
}

void rms_norm(const RmsNormRun& run) {
  switch (run.dtype) {
    case DType::kFloat16: return rms_norm_weight<half>(run);
    case DType::kBFloat16: return rms_norm_weight<bfloat16>(run);
    default: return rms_norm_rows<float, float>(run);
  }
}

}  // namespace heddle::cpu::norm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::norm {
HWY_EXPORT(rms_norm);
void rms_norm(const RmsNormRun& run) { HWY_DYNAMIC_DISPATCH(rms_norm)(run); }
}  // namespace heddle::cpu::norm
#endif
