#include "heddle/ops/elementwise.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "isa.h"
#include "mirror.h"
#include "ops/elementwise/test/elementwise_ref.h"
#include "ops/elementwise/test/round_to_test_body.h"
#include "ops/elementwise/test/sum_rows_test_body.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// An operation with its number, its definition and the bound of its relative error.
struct Operation {
  const char* name;
  void (*run)(const ExecContext&, TensorView, float);
  double (*want)(double, double);
  double relative_error;
  std::vector<float> numbers;
};

std::ostream& operator<<(std::ostream& os, const Operation& op) { return os << op.name; }

class Elementwise : public ::testing::TestWithParam<Operation> {};

INSTANTIATE_TEST_SUITE_P(
    Operations, Elementwise,
    ::testing::Values(
        Operation{"scale", scale, ref::scale, 0x1p-24, {0.0f, 1.0f, -1.5f, 0.22f, 45.254834f}},
        Operation{"soft_cap", soft_cap, ref::soft_cap, 0x1p-20, {30.0f, 50.0f, 0.7f, 1e4f}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Elementwise, EqualsTheDefinitionOnEveryTargetAndTouchesNothingElse) {
  const Operation& op = GetParam();
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : {1, 3, 8, 15, 16, 17, 100, 1536, 5000}) {
      const int64_t rows = testing::random_int(1, 6), stride = width + testing::random_int(0, 4);
      const float number = op.numbers[size_t(testing::random_int(0, 10) % op.numbers.size())];
      const auto before =
          testing::random_normal<float>(size_t(rows * width), testing::pick({0.01f, 1.0f, 60.0f}));
      testing::PoisonedBuffer<float> x(size_t(rows * stride));
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(&before[size_t(r * width)], width, x.data() + r * stride);
      ThreadPool pool(static_cast<int>(testing::random_int(1, 3)));
      ExecContext ctx;
      ctx.threads = &pool;
      op.run(ctx, x.view({rows, stride}).narrow(1, 0, width), number);
      EXPECT_TRUE(x.guards_intact());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          const double old = before[size_t(r * width + i)], want = op.want(old, double(number));
          const double error = std::abs(x[size_t(r * stride + i)] - want);
          ASSERT_TRUE(error <= std::abs(want) * op.relative_error)
              << old << " with " << number << " became " << x[size_t(r * stride + i)]
              << ", expected " << want;
        }
        for (int64_t i = width; i < stride; ++i)
          ASSERT_TRUE(x.untouched(size_t(r * stride + i))) << "row " << r << " past its end";
      }
    }
  }
}

TEST_P(Elementwise, BitsDependOnTheElementAlone) {
  const Operation& op = GetParam();
  const int64_t n = 9001;
  const auto before = testing::random_normal<float>(size_t(n), 40.0f);
  std::vector<float> first;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      ExecContext ctx;
      ctx.threads = &pool;
      std::vector<float> x = before;
      op.run(ctx, host_view(x.data(), {1, n}), op.numbers.back());
      if (first.empty()) first = x;
      EXPECT_TRUE(testing::same_bits<float>(x, first));
      x = before;  // one element a row
      op.run(ctx, host_view(x.data(), {n, 1}), op.numbers.back());
      EXPECT_TRUE(testing::same_bits<float>(x, first));
    }
  }
}

TEST_P(Elementwise, TakesNoRowsAndNoColumns) {
  testing::PoisonedBuffer<float> x(4);
  GetParam().run({}, x.view({0, 4}), GetParam().numbers.back());
  GetParam().run({}, x.view({4, 0}), GetParam().numbers.back());
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(x.untouched(i));
}

TEST_P(Elementwise, NamesWhatIsWrong) {
  std::vector<float> x(12);
  std::vector<half> h(12);
  const auto message = [&](TensorView view, const ExecContext& ctx = {}) {
    return testing::message_of([&] { GetParam().run(ctx, view, GetParam().numbers.back()); });
  };
  EXPECT_EQ(message(host_view(x.data(), {3, 4})), "no error");
  EXPECT_EQ(message(host_view(x.data(), {12})), "x has rank 1, expected 2");
  EXPECT_EQ(message(host_view(h.data(), {3, 4})), "x is f16, supported: f32");
  const std::array<int64_t, 2> shape{3, 2}, strides{4, 2};
  const TensorView gaps(reinterpret_cast<std::byte*>(x.data()), DType::kFloat32, {}, shape,
                        strides);
  EXPECT_EQ(message(gaps), "x.stride(1) is 2, expected 1");
  ExecContext gpu;
  gpu.device = {DeviceType::kCuda, 0};
  EXPECT_EQ(message(host_view(x.data(), {3, 4}), gpu), "x is on cpu, the context runs on cuda:0");
}

TEST(Add, EqualsTheSumOnEveryTargetAndTouchesNothingElse) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : {1, 7, 16, 33, 1536, 5000}) {
      const int64_t rows = testing::random_int(1, 6), gap = testing::random_int(0, 4);
      const auto before = testing::random_normal<float>(size_t(rows * width), 1.0f);
      const auto more = testing::random_normal<float>(size_t(rows * (width + gap)), 1.0f);
      testing::PoisonedBuffer<float> x(size_t(rows * width));
      std::copy(before.begin(), before.end(), x.data());
      ThreadPool pool(static_cast<int>(testing::random_int(1, 3)));
      ExecContext ctx;
      ctx.threads = &pool;
      const ConstTensorView y = host_view(more.data(), {rows, width + gap});
      add(ctx, x.view({rows, width}), y.narrow(1, 0, width));
      EXPECT_TRUE(x.guards_intact());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          const float want = before[size_t(r * width + i)] + more[size_t(r * (width + gap) + i)];
          ASSERT_EQ(x[size_t(r * width + i)], want) << r << ", " << i;
        }
      }
    }
  }
}

template <class T>
void check_round_to() {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    testing::Mirror here;
    for (int round = 0; round < 10; ++round) testing::check_round_to<T>({}, here);
  }
}

TEST(RoundTo, EqualsOneRoundingOnEveryTargetAndTouchesNothingElse) {
  check_round_to<half>();
  check_round_to<bfloat16>();
}

template <class T>
void check_sum_rows() {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    testing::Mirror here;
    for (int round = 0; round < 10; ++round) {
      ThreadPool pool(static_cast<int>(testing::random_int(1, 3)));
      ExecContext ctx;
      ctx.threads = &pool;
      testing::check_sum_rows<T>(ctx, here);
    }
  }
}

TEST(SumRows, AddsOneRowAfterTheOtherOnEveryTargetAndTouchesNothingElse) {
  check_sum_rows<float>();
  check_sum_rows<half>();
  check_sum_rows<bfloat16>();
}

TEST(SumRows, NamesWhatIsWrong) {
  std::vector<float> x(12), sum(4);
  std::vector<half> h(12);
  const auto message = [&](TensorView a, ConstTensorView b) {
    return testing::message_of([&] { sum_rows({}, a, b, SumStart::kZero); });
  };
  const TensorView to = host_view(sum.data(), {4});
  EXPECT_EQ(message(to, host_view(x.data(), {3, 4})), "no error");
  EXPECT_EQ(message(to, host_view(x.data(), {4, 3})), "sum.size(0) is 4, expected width = 3");
  EXPECT_EQ(message(host_view(h.data(), {4}), host_view(x.data(), {3, 4})),
            "sum is f16, supported: f32");
  EXPECT_EQ(message(to, host_view(x.data(), {12})), "x has rank 1, expected 2");
}

TEST(RoundTo, NamesWhatIsWrong) {
  std::vector<float> x(12);
  std::vector<half> h(12);
  const auto message = [&](TensorView a, ConstTensorView b) {
    return testing::message_of([&] { round_to({}, a, b); });
  };
  EXPECT_EQ(message(host_view(x.data(), {3, 4}), host_view(x.data(), {3, 4})),
            "y is f32, supported: f16, bf16");
  EXPECT_EQ(message(host_view(h.data(), {3, 4}), host_view(x.data(), {4, 3})),
            "x.size(0) is 4, expected num_tokens = 3");
  EXPECT_EQ(message(host_view(h.data(), {3, 4}), {}), "x is absent");
}

TEST(Add, NamesWhatIsWrong) {
  std::vector<float> x(12);
  const auto message = [&](TensorView a, ConstTensorView b) {
    return testing::message_of([&] { add({}, a, b); });
  };
  const TensorView view = host_view(x.data(), {3, 4});
  EXPECT_EQ(message(view, host_view(x.data(), {4, 3})), "y.size(0) is 4, expected num_tokens = 3");
  std::vector<half> h(12);
  EXPECT_EQ(message(view, host_view(h.data(), {3, 4})), "y is f16, supported: f32");
}

float capped(float x, float cap) {
  soft_cap({}, host_view(&x, {1, 1}), cap);
  return x;
}

TEST(SoftCap, EndsAtTheCapAndKeepsNaN) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    EXPECT_EQ(capped(0.0f, 30.0f), 0.0f);
    EXPECT_EQ(capped(kInfinity, 30.0f), 30.0f);
    EXPECT_EQ(capped(-kInfinity, 30.0f), -30.0f);
    EXPECT_EQ(capped(3e38f, 0.5f), 0.5f);  // x / cap overflows
    EXPECT_TRUE(std::isnan(capped(NAN, 30.0f)));
  }
}

TEST(SoftCap, HoldsItsErrorFromTheSmallestToTheLargestNumbers) {
  std::vector<float> before;
  for (float x = 0x1p-100f; x < 0x1p100f; x *= 1.0009f) before.insert(before.end(), {x, -x});
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    std::vector<float> x = before;
    soft_cap({}, host_view(x.data(), {1, std::ssize(x)}), 50.0f);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = ref::soft_cap(before[i], 50.0);
      ASSERT_TRUE(std::abs(x[i] - want) <= std::abs(want) * 0x1p-20) << before[i] << ": " << x[i];
    }
  }
}

TEST(SoftCap, RefusesACapThatIsNoFiniteNumberAboveZero) {
  for (const auto& [cap, text] : {std::pair{0.0f, "0"}, std::pair{-2.0f, "-2"},
                                  std::pair{kInfinity, "inf"}, std::pair{NAN, "nan"}}) {
    EXPECT_EQ(testing::message_of([&] { capped(1.0f, cap); }),
              "soft_cap: cap is " + std::string(text) + ", expected a finite number above 0");
  }
}

}  // namespace
}  // namespace heddle
