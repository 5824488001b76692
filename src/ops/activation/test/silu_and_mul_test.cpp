#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/activation.h"

#include "compare.h"
#include "isa.h"
#include "ops/activation/test/silu_and_mul_ref.h"
#include "ops/activation/test/silu_and_mul_test_body.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

template <class T>
class SiluAndMul : public ::testing::Test {};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(SiluAndMul, AllTypes);

template <class View, class T>
View strided(T* data, int64_t rows, int64_t width, int64_t stride) {
  const std::array<int64_t, 2> shape{rows, width}, strides{stride, 1};
  using Byte = std::remove_pointer_t<decltype(View().raw())>;
  return View(reinterpret_cast<Byte*>(data), kDType<std::remove_const_t<T>>, {}, shape, strides);
}

TYPED_TEST(SiluAndMul, EqualsTheDefinitionOnEveryTarget) {
  using T = TypeParam;
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : {1, 3, 8, 15, 16, 17, 100, 1536, 5000}) {
      // gate and up are two views of one fused product, as in a model.
      const int64_t rows = testing::random_int(1, 4), y_stride = width + 2;
      const auto fused = testing::random_normal<T>(size_t(rows * 2 * width), 4.0f);
      testing::PoisonedBuffer<T> y(size_t(rows * y_stride));
      silu_and_mul({}, strided<TensorView>(y.data(), rows, width, y_stride),
                   strided<ConstTensorView>(fused.data(), rows, width, 2 * width),
                   strided<ConstTensorView>(fused.data() + width, rows, width, 2 * width));
      EXPECT_TRUE(y.guards_intact());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          const T* gate = fused.data() + r * 2 * width + i;
          const double want = ref::silu_and_mul(to_float(gate[0]), to_float(gate[width]));
          const double error = std::abs(to_float(y[size_t(r * y_stride + i)]) - want);
          // One rounding to T (absolute below f16's smallest normal number) and some of f32.
          ASSERT_LE(error, std::abs(want) * (testing::kRounding<T> + 0x1p-21) + 0x1p-25) << gate;
        }
        for (int64_t i = width; i < y_stride; ++i) {
          ASSERT_TRUE(y.untouched(size_t(r * y_stride + i)));
        }
      }
    }
  }
}

TYPED_TEST(SiluAndMul, TakesAnyStridesAndWorksInPlace) {
  testing::Mirror mirror;
  for (int round = 0; round < 60; ++round) {
    testing::check_gated<TypeParam>({}, mirror, testing::silu_op());
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(SiluAndMul, BitsDependOnTheTwoInputsAlone) {
  using T = TypeParam;
  const int64_t n = 9001;
  const auto gate = testing::random_normal<T>(n, 5.0f), up = testing::random_normal<T>(n);
  std::vector<T> first;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      ExecContext ctx;
      ctx.threads = &pool;
      std::vector<T> y = gate;  // in place
      silu_and_mul(ctx, host_view(y.data(), {1, n}), host_view(y.data(), {1, n}),
                   host_view(up.data(), {1, n}));
      if (first.empty()) first = y;
      EXPECT_TRUE(testing::same_bits<T>(y, first));
      y = up;  // one element a row, over the other input
      silu_and_mul(ctx, host_view(y.data(), {n, 1}), host_view(gate.data(), {n, 1}),
                   host_view(y.data(), {n, 1}));
      EXPECT_TRUE(testing::same_bits<T>(y, first));
    }
  }
}

float silu(float gate, float up = 1.0f) {
  float y = 0.0f;
  silu_and_mul({}, host_view(&y, {1, 1}), host_view(&gate, {1, 1}), host_view(&up, {1, 1}));
  return y;
}

TEST(SiluAndMulValues, AreFiniteWhereverTheLimitIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    EXPECT_EQ(silu(0.0f), 0.0f);
    EXPECT_EQ(silu(kInfinity), kInfinity);
    EXPECT_EQ(silu(-kInfinity), 0.0f);
    EXPECT_EQ(silu(-3e38f), 0.0f);
    EXPECT_EQ(silu(3e38f), 3e38f);
    EXPECT_TRUE(std::isnan(silu(NAN)));
    EXPECT_TRUE(std::isnan(silu(1.0f, NAN)));
    for (const float gate : {-1e-30f, 1e-30f, -20.0f, -87.0f, 20.0f, 88.0f, 100.0f}) {
      const double want = ref::silu_and_mul(gate, 1.0);
      EXPECT_NEAR(silu(gate) / want, 1.0, 1e-6) << gate;
    }
    for (const float gate : {-89.0f, -95.0f, -100.0f, -103.0f}) {  // subnormal exp: absolute error
      EXPECT_NEAR(silu(gate), ref::silu_and_mul(gate, 1.0), 1e-42) << gate;
    }
  }
}

TEST(SiluAndMulShapes, EmptyTensorsAreANoOp) {
  testing::PoisonedBuffer<float> y(4);
  silu_and_mul({}, y.view({0, 4}), y.view({0, 4}), y.view({0, 4}));
  silu_and_mul({}, y.view({4, 0}), y.view({4, 0}), y.view({4, 0}));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
}

TEST(SiluAndMulErrors, NameTensorAxisAndBothValues) {
  std::vector<float> x(12);
  std::vector<half> h(12);
  std::vector<int32_t> ids(12);
  const auto message = [](TensorView y, ConstTensorView gate, ConstTensorView up) -> std::string {
    try {
      silu_and_mul({}, y, gate, up);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto view = [&](std::initializer_list<int64_t> shape) {
    return host_view(x.data(), shape);
  };
  EXPECT_EQ(message(view({3, 4}), view({3, 4}), view({2, 4})),
            "up.size(0) is 2, expected num_tokens = 3");
  EXPECT_EQ(message(view({3, 2}), view({3, 4}), view({3, 4})),
            "y.size(1) is 2, expected width = 4");
  EXPECT_EQ(message(host_view(h.data(), {3, 4}), view({3, 4}), view({3, 4})),
            "y is f16, but gate is f32");
  EXPECT_EQ(message(view({3, 4}), host_view(ids.data(), {3, 4}), view({3, 4})),
            "gate is i32, supported: f32, f16, bf16");
  EXPECT_EQ(message(view({3, 4}), view({3, 4}), host_view(h.data(), {3, 4})),
            "up is f16, but gate is f32");
  const std::array<int64_t, 2> shape{3, 2}, wide{4, 2};
  const TensorView gaps(reinterpret_cast<std::byte*>(x.data()), DType::kFloat32, {}, shape, wide);
  EXPECT_EQ(message(gaps, view({3, 2}), view({3, 2})), "y.stride(1) is 2, expected 1");
  EXPECT_EQ(message(view({3, 2}), gaps, view({3, 2})), "gate.stride(1) is 2, expected 1");
  EXPECT_EQ(message(view({3, 2}), view({3, 2}), gaps), "up.stride(1) is 2, expected 1");
}

}  // namespace
}  // namespace heddle
