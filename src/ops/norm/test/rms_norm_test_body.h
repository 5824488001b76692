#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/norm.h"

#include "compare.h"
#include "mirror.h"
#include "ops/norm/test/rms_norm_ref.h"
#include "poison.h"
#include "random.h"

// The bodies of the tests of rms_norm and fused_add_rms_norm, for any device.

namespace heddle::testing {

template <class T, class W>
struct NormTypes {
  using Element = T;
  using Weight = W;
};
using AllNormTypes =
    ::testing::Types<NormTypes<float, float>, NormTypes<half, half>, NormTypes<half, float>,
                     NormTypes<bfloat16, bfloat16>, NormTypes<bfloat16, float>>;

/// How the rows of a matrix lie: elements before the first one and after each.
struct RowLayout {
  int64_t shift = 0, padding = 0;

  /// With rows that begin at multiples of 16 bytes, for an aligned width.
  static RowLayout aligned() { return {0, 16 * random_int(0, 2)}; }
  static RowLayout any() {
    return random_int(0, 1) == 0 ? aligned() : RowLayout{random_int(0, 9), random_int(0, 5)};
  }
};

/// Rows of a padded matrix; the gaps between rows keep their poison.
template <class T>
struct Matrix {
  int64_t rows, width, stride, shift;
  PoisonedBuffer<T> buffer;

  Matrix(int64_t rows, int64_t width, RowLayout layout = RowLayout::any())
      : rows(rows),
        width(width),
        stride(width + layout.padding),
        shift(layout.shift),
        buffer(size_t(layout.shift + rows * stride)) {}
  Matrix(int64_t rows, int64_t width, const std::vector<T>& values,
         RowLayout layout = RowLayout::any())
      : Matrix(rows, width, layout) {
    fill(values);
  }

  T* row(int64_t r) { return buffer.data() + shift + r * stride; }
  void fill(const std::vector<T>& values) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * width, width, row(r));
    }
  }
  std::vector<T> values() {
    std::vector<T> result;
    for (int64_t r = 0; r < rows; ++r) result.insert(result.end(), row(r), row(r) + width);
    return result;
  }
  TensorView view() {
    const std::array<int64_t, 2> shape{rows, width}, strides{stride, 1};
    return TensorView(reinterpret_cast<std::byte*>(row(0)), kDType<T>, {}, shape, strides);
  }
  void expect_gaps_untouched() const {
    EXPECT_TRUE(buffer.guards_intact());
    for (int64_t i = 0; i < int64_t(buffer.size()); ++i) {
      const bool is_gap = i < shift || (i - shift) % stride >= width;
      ASSERT_TRUE(!is_gap || buffer.untouched(size_t(i)));
    }
  }
};

/// A fresh random problem and its answer in double.
template <class T, class W>
struct NormProblem {
  int64_t rows, width;
  RmsNormOptions options;
  std::vector<T> input, residual;
  std::vector<W> weight;

  NormProblem(int64_t rows, int64_t width) : rows(rows), width(width) {
    // One zero alone in a row has no root mean square: 0 / 0.
    options.epsilon = pick({width > 1 ? 0.0f : 1e-6f, 1e-6f, 1e-2f});
    options.weight_offset = static_cast<int>(random_int(0, 1));
    input = random_normal<T>(size_t(rows * width), pick({0.1f, 3.0f}));
    residual = random_normal<T>(size_t(rows * width));
    weight = random_normal<W>(size_t(width));
  }
  [[nodiscard]] ConstTensorView weight_view() const { return host_view(weight.data(), {width}); }
  /// T(residual + input), which f32 holds exactly enough: one rounding of a sum of two T.
  [[nodiscard]] std::vector<T> added() const {
    std::vector<T> sum(input.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = from_float<T>(to_float(residual[i]) + to_float(input[i]));
    }
    return sum;
  }
  [[nodiscard]] std::vector<double> expected(const std::vector<T>& x) const {
    const std::vector<double> xs = to_double(x), ws = to_double(weight);
    std::vector<double> y;
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = ref::rms_norm(std::span(xs).subspan(size_t(r * width), size_t(width)), ws,
                                     options.epsilon, options.weight_offset);
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }
  [[nodiscard]] std::vector<T> row(const std::vector<T>& values, int64_t r) const {
    return rows_of(values, r, 1);
  }
  [[nodiscard]] std::vector<T> rows_of(const std::vector<T>& values, int64_t first,
                                       int64_t count) const {
    return {values.begin() + first * width, values.begin() + (first + count) * width};
  }
};

template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, int64_t width) {
  double top = 1e-30;
  for (const double y : want) top = std::max(top, std::abs(y));
  // Half the distance of the smallest values, which a narrow row may have alone.
  const double least = std::is_same_v<T, half> ? 0x1p-25 : 0.0;
  EXPECT_LT(relative_error<T>(got, want), tolerance<T>(width) + least / top);
}

template <class T, class W>
void expect_definition(const ExecContext& ctx, Mirror& on, int64_t width) {
  NormProblem<T, W> p(random_int(1, 5), width);
  Matrix<T> x(p.rows, width, p.input), y(p.rows, width);
  rms_norm(ctx, on(y.view()), on(ConstTensorView(x.view())), on(p.weight_view()), p.options);
  on.back();
  expect_close(y.values(), p.expected(p.input), width);
  y.expect_gaps_untouched();
  EXPECT_TRUE(same_bits<T>(x.values(), p.input));
}

template <class T, class W>
void expect_fused_add_normalises_the_rounded_residual(const ExecContext& ctx, Mirror& on,
                                                      int64_t width) {
  NormProblem<T, W> p(3, width);
  Matrix<T> x(3, width, p.input), residual(3, width, p.residual), y(3, width), again(3, width);
  fused_add_rms_norm(ctx, on(y.view()), on(residual.view()), on(ConstTensorView(x.view())),
                     on(p.weight_view()), p.options);
  on.back();
  EXPECT_TRUE(same_bits<T>(residual.values(), p.added()));
  expect_close(y.values(), p.expected(p.added()), width);
  y.expect_gaps_untouched();
  residual.expect_gaps_untouched();

  rms_norm(ctx, on(again.view()), on(ConstTensorView(residual.view())), on(p.weight_view()),
           p.options);
  on.back();
  EXPECT_TRUE(same_bits<T>(y.values(), again.values()));

  residual.fill(p.residual);
  const TensorView in_place = on(x.view());
  fused_add_rms_norm(ctx, in_place, on(residual.view()), in_place, on(p.weight_view()), p.options);
  on.back();
  EXPECT_TRUE(same_bits<T>(x.values(), y.values()));
  x.expect_gaps_untouched();
}

/// The rows of p after a call in place, rows lying as `layout` says.
template <class T, class W>
std::vector<T> normalised_in_place(const ExecContext& ctx, Mirror& on, const NormProblem<T, W>& p,
                                   const std::vector<T>& input, RowLayout layout) {
  Matrix<T> x(std::ssize(input) / p.width, p.width, input, layout);
  const TensorView in_place = on(x.view());
  rms_norm(ctx, in_place, in_place, on(p.weight_view()), p.options);
  on.back();
  x.expect_gaps_untouched();
  return x.values();
}

/// A row alone has the bits that it has among others, wherever it lies.
template <class T, class W>
void expect_bits_of_a_row_alone(const ExecContext& ctx, Mirror& on, int64_t rows, int64_t width) {
  NormProblem<T, W> p(rows, width);
  const auto all = normalised_in_place(ctx, on, p, p.input, RowLayout::aligned());
  EXPECT_TRUE(same_bits<T>(normalised_in_place(ctx, on, p, p.input, RowLayout{1, 3}), all));
  for (int i = 0; i < 3; ++i) {
    const int64_t r = random_int(0, rows - 1);
    EXPECT_TRUE(same_bits<T>(normalised_in_place(ctx, on, p, p.row(p.input, r), RowLayout::any()),
                             p.row(all, r)));
  }
}

/// Every value of f8e4m3 is the rounding of the f32 value that the same call gives in f32, and a
/// row's scale that of its largest.
template <class T, class W>
void expect_fp8_is_the_rounding_of_the_f32_value(const ExecContext& ctx, Mirror& on,
                                                 int64_t width) {
  NormProblem<T, W> p(random_int(1, 4), width);
  const bool is_fused = random_int(0, 1) == 1, has_row_scales = random_int(0, 1) == 1;
  const std::vector<T> normed = is_fused ? p.added() : p.input;
  NormProblem<float, float> wide(p.rows, width);
  wide.options = p.options;
  std::ranges::transform(normed, wide.input.begin(), [](T v) { return to_float(v); });
  std::ranges::transform(p.weight, wide.weight.begin(), [](W v) { return to_float(v); });
  const std::vector<float> values =
      normalised_in_place(ctx, on, wide, wide.input, RowLayout::any());

  const float fixed = pick({1e-3f, 0.02f, 1.0f});
  PoisonedBuffer<float> row_scales(size_t(p.rows));
  RmsNormOptions options = p.options;
  if (has_row_scales) {
    options.output_scale.per_row = on(row_scales.view({p.rows}));
  } else {
    options.output_scale.fixed = on(ConstTensorView(host_view(&fixed, {1})));
  }
  Matrix<T> x(p.rows, width, p.input), residual(p.rows, width, p.residual);
  Matrix<float8_e4m3> y(p.rows, width);
  const ConstTensorView input = on(ConstTensorView(x.view())), weight = on(p.weight_view());
  if (is_fused) {
    fused_add_rms_norm(ctx, on(y.view()), on(residual.view()), input, weight, options);
  } else {
    rms_norm(ctx, on(y.view()), input, weight, options);
  }
  on.back();
  y.expect_gaps_untouched();
  EXPECT_TRUE(row_scales.guards_intact());
  EXPECT_TRUE(same_bits<T>(residual.values(), is_fused ? normed : p.residual));

  for (int64_t r = 0; r < p.rows; ++r) {
    float scale = fixed;
    if (has_row_scales) {
      float largest = 0.0f;
      for (const float v : wide.row(values, r)) largest = std::max(largest, std::abs(v));
      scale = std::max(largest / 448.0f, 0x1p-126f);
      ASSERT_EQ(row_scales[size_t(r)], scale) << "row " << r;
    }
    for (int64_t i = 0; i < width; ++i) {
      const float value = values[size_t(r * width + i)] * (1.0f / scale);
      ASSERT_EQ(y.row(r)[i].bits, from_float<float8_e4m3>(value).bits)
          << "row " << r << ", element " << i << ", of " << value;
    }
  }
}

/// Of an input of f32 an output of O is the rounding of the f32 value that the same call gives.
template <class O>
void expect_narrow_output_is_rounded_once(const ExecContext& ctx, Mirror& on, int64_t width) {
  NormProblem<float, float> p(random_int(1, 4), width);
  const bool is_fused = random_int(0, 1) == 1;
  const std::vector<float> values =
      normalised_in_place(ctx, on, p, is_fused ? p.added() : p.input, RowLayout::any());
  Matrix<float> x(p.rows, width, p.input), residual(p.rows, width, p.residual);
  Matrix<O> y(p.rows, width);
  const ConstTensorView input = on(ConstTensorView(x.view())), weight = on(p.weight_view());
  if (is_fused) {
    fused_add_rms_norm(ctx, on(y.view()), on(residual.view()), input, weight, p.options);
  } else {
    rms_norm(ctx, on(y.view()), input, weight, p.options);
  }
  on.back();
  y.expect_gaps_untouched();
  EXPECT_TRUE(same_bits<float>(residual.values(), is_fused ? p.added() : p.residual));
  std::vector<O> rounded;
  for (const float value : values) rounded.push_back(from_float<O>(value));
  EXPECT_TRUE(same_bits<O>(y.values(), rounded));
}

/// Rows of zeros have the least scale; a NaN makes its row NaN, and no other.
inline void expect_fp8_of_zeros_and_nan(const ExecContext& ctx, Mirror& on) {
  const int64_t width = 200;
  std::vector<float> input(size_t(3 * width), 0.0f);
  input[size_t(width + 7)] = std::nanf("");
  std::fill(input.begin() + 2 * width, input.end(), -2.0f);
  const std::vector<float> weight(size_t(width), 3.0f);
  PoisonedBuffer<float> scales(3);
  Matrix<float8_e4m3> y(3, width);
  RmsNormOptions options;
  options.output_scale.per_row = on(scales.view({3}));
  rms_norm(ctx, on(y.view()), on(ConstTensorView(host_view(input.data(), {3, width}))),
           on(ConstTensorView(host_view(weight.data(), {width}))), options);
  on.back();
  EXPECT_EQ(scales[0], 0x1p-126f);
  EXPECT_EQ(scales[1], 0x1p-126f);
  EXPECT_NEAR(scales[2], 3.0f / 448.0f, 1e-6f);
  for (int64_t i = 0; i < width; ++i) {
    ASSERT_EQ(y.row(0)[i].bits, 0x00);
    ASSERT_EQ(y.row(1)[i].bits, 0x7f);
    ASSERT_EQ(y.row(2)[i].bits, 0xfe);  // -448
  }
}

/// The input lies as [heads, tokens, width + 4], the output as a compact tensor of rank 8, the
/// scales as one of rank 7.
inline void expect_any_rank_and_strides(const ExecContext& ctx, Mirror& on) {
  const int64_t batch = 2, tokens = 5, heads = 3, width = 20;
  NormProblem<float, float> p(batch * tokens * heads, width);
  const int64_t head_step = batch * tokens * (width + 4);
  PoisonedBuffer<float> x(size_t(heads * head_step)), y(p.input.size()), scales(size_t(p.rows));
  for (int64_t t = 0; t < batch * tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(p.input.begin() + (t * heads + h) * width, width,
                  x.data() + h * head_step + t * (width + 4));
    }
  }
  const std::array<int64_t, 8> shape{1, batch, tokens, 1, heads, 1, 1, width};
  const std::array<int64_t, 8> strides{9, tokens * (width + 4), width + 4, 9, head_step, 9, 9, 1};
  const ConstTensorView input(reinterpret_cast<const std::byte*>(x.data()), DType::kFloat32, {},
                              shape, strides);
  const std::array<int64_t, 8> no_steps{0, tokens * (width + 4), width + 4, 0, head_step, 0, 0, 1};
  const ConstTensorView same(reinterpret_cast<const std::byte*>(x.data()), DType::kFloat32, {},
                             shape, no_steps);
  rms_norm(ctx, on(y.view({1, batch, tokens, 1, heads, 1, 1, width})), on(input),
           on(p.weight_view()), p.options);
  on.back();
  EXPECT_LT(relative_error<float>({y.data(), y.size()}, p.expected(p.input)), 1e-5);

  Matrix<float8_e4m3> y8(p.rows, width, RowLayout{});
  const TensorView y8_there(reinterpret_cast<std::byte*>(y8.row(0)), DType::kFloat8E4M3, {}, shape);
  RmsNormOptions options = p.options;
  options.output_scale.per_row = on(scales.view({1, batch, tokens, 1, heads, 1, 1}));
  rms_norm(ctx, on(y8_there), on(same), on(p.weight_view()), options);
  on.back();
  for (size_t i = 0; i < y.size(); ++i) {
    const float scale = scales[i / size_t(width)];
    ASSERT_EQ(y8.row(0)[i].bits, from_float<float8_e4m3>(y[i] * (1.0f / scale)).bits) << i;
  }

  PoisonedBuffer<float> vector(size_t{width});
  rms_norm(ctx, on(vector.view({width})), on(ConstTensorView(host_view(p.input.data(), {width}))),
           on(p.weight_view()), p.options);
  on.back();
  EXPECT_TRUE(same_bits<float>({vector.data(), size_t(width)}, {y.data(), size_t(width)}));
}

inline void expect_empty_tensors_are_a_no_op(const ExecContext& ctx, Mirror& on) {
  PoisonedBuffer<float> y(4);
  const std::vector<float> weight(4, 1.0f);
  for (const int64_t rows : {0, 4}) {
    const int64_t width = 4 - rows;
    const TensorView nothing = y.view({rows, width});
    rms_norm(ctx, on(nothing), on(ConstTensorView(nothing)),
             on(ConstTensorView(host_view(weight.data(), {width}))));
  }
  on.back();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
}

inline void expect_nan_stays_in_its_row(const ExecContext& ctx, Mirror& on) {
  std::vector<float> x(2 * 40, 1.0f), weight(40, 2.0f);
  x[3] = std::nanf("");
  PoisonedBuffer<float> y(x.size());
  rms_norm(ctx, on(y.view({2, 40})), on(ConstTensorView(host_view(x.data(), {2, 40}))),
           on(ConstTensorView(host_view(weight.data(), {40}))));
  on.back();
  for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(y[i] != y[i]);
  for (size_t i = 40; i < 80; ++i) EXPECT_NEAR(y[i], 2.0f, 1e-5f);
}

}  // namespace heddle::testing
