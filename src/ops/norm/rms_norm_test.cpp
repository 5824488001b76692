#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/norm.h"

#include "compare.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/norm/rms_norm_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::message_of;

template <class T, class W>
struct Types {
  using Element = T;
  using Weight = W;
};

template <class Pair>
class RmsNorm : public ::testing::Test {};
using AllTypes = ::testing::Types<Types<float, float>, Types<half, half>, Types<half, float>,
                                  Types<bfloat16, bfloat16>, Types<bfloat16, float>>;
TYPED_TEST_SUITE(RmsNorm, AllTypes);

/// Rows of a padded matrix; the gaps between rows keep their poison.
template <class T>
struct Matrix {
  int64_t rows, width, stride;
  testing::PoisonedBuffer<T> buffer;

  Matrix(int64_t rows, int64_t width, int64_t padding)
      : rows(rows), width(width), stride(width + padding), buffer(size_t(rows * stride)) {}

  T* row(int64_t r) { return buffer.data() + r * stride; }
  void fill(const std::vector<T>& values) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) row(r)[i] = values[size_t(r * width + i)];
    }
  }
  std::vector<T> values() {
    std::vector<T> result;
    for (int64_t r = 0; r < rows; ++r) result.insert(result.end(), row(r), row(r) + width);
    return result;
  }
  TensorView view() {
    const std::array<int64_t, 2> shape{rows, width}, strides{stride, 1};
    return TensorView(reinterpret_cast<std::byte*>(buffer.data()), kDType<T>, {}, shape, strides);
  }
  void expect_gaps_untouched() const {
    EXPECT_TRUE(buffer.guards_intact());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = width; i < stride; ++i)
        ASSERT_TRUE(buffer.untouched(size_t(r * stride + i)));
    }
  }
};

/// A fresh random problem and its answer in double.
template <class T, class W>
struct Problem {
  int64_t rows, width;
  RmsNormOptions options;
  std::vector<T> input, residual;
  std::vector<W> weight;

  Problem(int64_t rows, int64_t width) : rows(rows), width(width) {
    options.epsilon = testing::pick({0.0f, 1e-6f, 1e-2f});
    options.weight_offset = static_cast<int>(testing::random_int(0, 1));
    input = testing::random_normal<T>(size_t(rows * width), testing::pick({0.1f, 3.0f}));
    residual = testing::random_normal<T>(size_t(rows * width));
    weight = testing::random_normal<W>(size_t(width));
  }
  /// T(residual + input), which f32 holds exactly enough: one rounding of a sum of two T.
  [[nodiscard]] std::vector<T> added() const {
    std::vector<T> sum(input.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = from_float<T>(to_float(residual[i]) + to_float(input[i]));
    }
    return sum;
  }
  [[nodiscard]] std::vector<double> expected(const std::vector<T>& x) const {
    const std::vector<double> xs = testing::to_double(x), ws = testing::to_double(weight);
    std::vector<double> y;
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = ref::rms_norm(std::span(xs).subspan(size_t(r * width), size_t(width)), ws,
                                     options.epsilon, options.weight_offset);
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }
};

constexpr int64_t kWidths[] = {1, 2, 7, 15, 16, 17, 63, 64, 65, 100, 129, 576, 1537};

template <class T>
void expect_close(std::vector<T> got, const std::vector<double>& want, int64_t width) {
  EXPECT_LT(testing::relative_error<T>(got, want), testing::tolerance<T>(width));
}

TYPED_TEST(RmsNorm, EqualsTheDefinitionOnEveryTarget) {
  using T = typename TypeParam::Element;
  using W = typename TypeParam::Weight;
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : kWidths) {
      Problem<T, W> p(testing::random_int(1, 5), width);
      Matrix<T> x(p.rows, width, testing::random_int(0, 5)), y(p.rows, width, 3);
      x.fill(p.input);
      rms_norm({}, y.view(), x.view(), host_view(p.weight.data(), {width}), p.options);
      expect_close(y.values(), p.expected(p.input), width);
      y.expect_gaps_untouched();
      EXPECT_TRUE(testing::same_bits<T>(x.values(), p.input));
    }
  }
}

TYPED_TEST(RmsNorm, FusedAddNormalisesTheRoundedResidual) {
  using T = typename TypeParam::Element;
  using W = typename TypeParam::Weight;
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : kWidths) {
      Problem<T, W> p(3, width);
      Matrix<T> x(3, width, 1), residual(3, width, 2), y(3, width, 3), again(3, width, 0);
      x.fill(p.input);
      residual.fill(p.residual);
      const ConstTensorView weight = host_view(p.weight.data(), {width});
      fused_add_rms_norm({}, y.view(), residual.view(), x.view(), weight, p.options);
      EXPECT_TRUE(testing::same_bits<T>(residual.values(), p.added()));
      expect_close(y.values(), p.expected(p.added()), width);
      rms_norm({}, again.view(), residual.view(), weight, p.options);
      EXPECT_TRUE(testing::same_bits<T>(y.values(), again.values()));
      y.expect_gaps_untouched();
      residual.expect_gaps_untouched();
      residual.fill(p.residual);
      fused_add_rms_norm({}, x.view(), residual.view(), x.view(), weight, p.options);  // in place
      EXPECT_TRUE(testing::same_bits<T>(x.values(), y.values()));
      x.expect_gaps_untouched();
    }
  }
}

TYPED_TEST(RmsNorm, BitsDependOnTheRowAlone) {
  using T = typename TypeParam::Element;
  using W = typename TypeParam::Weight;
  const int64_t rows = 70, width = testing::pick<int64_t>({577, 64, 1000});
  Problem<T, W> p(rows, width);
  const ConstTensorView weight = host_view(p.weight.data(), {width});
  std::vector<T> first;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      ExecContext ctx;
      ctx.threads = &pool;
      Matrix<T> x(rows, width, threads);
      x.fill(p.input);
      rms_norm(ctx, x.view(), x.view(), weight, p.options);  // in place
      if (first.empty()) first = x.values();
      EXPECT_TRUE(testing::same_bits<T>(x.values(), first)) << testing::cpu_target_name(target);
    }
    Matrix<T> alone(1, width, 0);
    const int64_t r = testing::random_int(0, rows - 1);
    alone.fill({p.input.begin() + r * width, p.input.begin() + (r + 1) * width});
    rms_norm({}, alone.view(), alone.view(), weight, p.options);
    EXPECT_TRUE(testing::same_bits<T>(
        alone.values(),
        std::vector<T>(first.begin() + r * width, first.begin() + (r + 1) * width)));
  }
}

TEST(RmsNormShapes, OuterAxesMayHaveAnyRankAndStrides) {
  const int64_t tokens = 5, heads = 3, width = 20;
  Problem<float, float> p(tokens * heads, width);
  // The input lies as [heads, tokens, width + 4], the output as a compact tensor of rank 8.
  testing::PoisonedBuffer<float> x(size_t(heads * tokens * (width + 4))), y(p.input.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < width; ++i) {
        x[size_t((h * tokens + t) * (width + 4) + i)] =
            p.input[size_t((t * heads + h) * width + i)];
      }
    }
  }
  const std::array<int64_t, 8> shape{1, 1, tokens, 1, heads, 1, 1, width};
  const std::array<int64_t, 8> strides{9, 9, width + 4, 9, tokens * (width + 4), 9, 9, 1};
  const ConstTensorView input(reinterpret_cast<const std::byte*>(x.data()), DType::kFloat32, {},
                              shape, strides);
  ThreadPool pool(2);
  ExecContext ctx;
  ctx.threads = &pool;
  rms_norm(ctx, y.view({1, 1, tokens, 1, heads, 1, 1, width}), input,
           host_view(p.weight.data(), {width}), p.options);
  EXPECT_LT(testing::relative_error<float>({y.data(), y.size()}, p.expected(p.input)), 1e-5);
  testing::PoisonedBuffer<float> vector(size_t{width});
  rms_norm(ctx, vector.view({width}), host_view(p.input.data(), {width}),
           host_view(p.weight.data(), {width}), p.options);
  EXPECT_TRUE(testing::same_bits<float>({vector.data(), size_t(width)}, {y.data(), size_t(width)}));
}

TEST(RmsNormShapes, EmptyTensorsAreANoOp) {
  testing::PoisonedBuffer<float> y(4);
  const std::vector<float> weight(4, 1.0f);
  rms_norm({}, y.view({0, 4}), host_view(y.data(), {0, 4}), host_view(weight.data(), {4}));
  rms_norm({}, y.view({4, 0}), host_view(y.data(), {4, 0}), host_view(weight.data(), {0}));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
}

TEST(RmsNormErrors, NameTensorAxisAndBothValues) {
  std::vector<float> x(12, 1.0f);
  std::vector<half> h(12);
  const auto view = [&](std::initializer_list<int64_t> shape) {
    return host_view(x.data(), shape);
  };
  EXPECT_EQ(message_of([&] {
              rms_norm({}, view({3, 4}), view({3, 4}), view({5}));
            }),
            "weight.size(0) is 5, expected width = 4");
  EXPECT_EQ(message_of([&] {
              rms_norm({}, view({2, 4}), view({3, 4}), view({4}));
            }),
            "output.size(0) is 2, but input.size(0) is 3");
  EXPECT_EQ(message_of([&] {
              rms_norm({}, host_view(h.data(), {3, 4}), view({3, 4}), view({4}));
            }),
            "output is f16, but input is f32");
  EXPECT_EQ(message_of([&] {
              rms_norm({}, view({3, 4}), view({3, 4}), host_view(h.data(), {4}));
            }),
            "weight is f16, expected f32 as input, or f32");
  EXPECT_EQ(message_of([&] {
              rms_norm({}, view({3, 4}), view({3, 4}), view({4}), {1e-6f, 2});
            }),
            "weight_offset is 2, expected 0 or 1");
  EXPECT_EQ(message_of([&] {
              fused_add_rms_norm({}, view({3, 4}), {}, view({3, 4}), view({4}));
            }),
            "residual has rank 0, but input has rank 2");
}

TEST(RmsNormValues, NanStaysInItsRow) {
  std::vector<float> x(2 * 40, 1.0f), weight(40, 2.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  testing::PoisonedBuffer<float> y(x.size());
  rms_norm({}, y.view({2, 40}), host_view(x.data(), {2, 40}), host_view(weight.data(), {40}));
  for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(y[i] != y[i]);
  for (size_t i = 40; i < 80; ++i) EXPECT_NEAR(y[i], 2.0f, 1e-5f);
}

}  // namespace
}  // namespace heddle
