#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/activation.h"

#include "compare.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/activation/test/gelu_and_mul_test_body.h"
#include "random.h"

namespace heddle {
namespace {

constexpr GeluForm kForms[] = {GeluForm::kErf, GeluForm::kTanh};

template <class T>
class GeluAndMul : public ::testing::Test {};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(GeluAndMul, AllTypes);

TYPED_TEST(GeluAndMul, EqualsTheDefinitionOnEveryTarget) {
  testing::Mirror mirror;
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (int round = 0; round < 40; ++round) {
      testing::check_gated<TypeParam>({}, mirror, testing::gelu_op(kForms[round % 2]));
      ASSERT_FALSE(this->HasFailure()) << "round " << round;
    }
  }
}

TYPED_TEST(GeluAndMul, BitsDependOnTheTwoInputsAlone) {
  using T = TypeParam;
  const int64_t n = 9001;
  const auto gate = testing::random_normal<T>(n, 3.0f), up = testing::random_normal<T>(n);
  for (const GeluForm form : kForms) {
    std::vector<T> first;
    for (const int64_t target : testing::cpu_targets()) {
      if (!testing::has_fused_multiply_add(target)) continue;
      SCOPED_TRACE(testing::cpu_target_name(target));
      const testing::ScopedCpuTarget scoped(target);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        ExecContext ctx;
        ctx.threads = &pool;
        std::vector<T> y(n);
        gelu_and_mul(ctx, host_view(y.data(), {1, n}), host_view(gate.data(), {1, n}),
                     host_view(up.data(), {1, n}), form);
        if (first.empty()) first = y;
        EXPECT_TRUE(testing::same_bits<T>(y, first));
        y.assign(n, T{});  // one element a row
        gelu_and_mul(ctx, host_view(y.data(), {n, 1}), host_view(gate.data(), {n, 1}),
                     host_view(up.data(), {n, 1}), form);
        EXPECT_TRUE(testing::same_bits<T>(y, first));
      }
    }
  }
}

/// gelu of each gate, in f32.
std::vector<float> gelu(GeluForm form, const std::vector<float>& gates) {
  const auto n = std::ssize(gates);
  const std::vector<float> up(gates.size(), 1.0f);
  std::vector<float> y(gates.size());
  gelu_and_mul({}, host_view(y.data(), {1, n}), host_view(gates.data(), {1, n}),
               host_view(up.data(), {1, n}), form);
  return y;
}

TEST(GeluAndMulValues, KeepTheirBoundOverTheWholeRange) {
  std::vector<float> gates;
  for (float gate = -12.0f; gate < 12.0f; gate += 0x1p-14f) gates.push_back(gate);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const GeluForm form : kForms) {
      const testing::GatedOp op = testing::gelu_op(form);
      const std::vector<float> got = gelu(form, gates);
      for (size_t i = 0; i < gates.size(); ++i) {
        const double want = op.want(gates[i], 1.0);
        ASSERT_LE(std::abs(got[i] - want), testing::gated_limit<float>(op, gates[i], want))
            << gates[i];
      }
    }
  }
}

TEST(GeluAndMulValues, AreFiniteWhereverTheLimitIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const GeluForm form : kForms) {
      EXPECT_EQ(gelu(form, {0.0f, -kInfinity, -3e38f, -1e15f, -40.0f}),
                (std::vector<float>(5, 0.0f)));
      EXPECT_EQ(gelu(form, {kInfinity, 3e38f, 40.0f}),
                (std::vector<float>{kInfinity, 3e38f, 40.0f}));
      EXPECT_TRUE(std::isnan(gelu(form, {NAN})[0]));
    }
  }
}

TEST(GeluAndMulValues, TheFormsAreTwoFunctions) {
  const double at_one = 0.5 * (1.0 + std::erf(1.0 / std::numbers::sqrt2));  // 0.84134
  EXPECT_NEAR(gelu(GeluForm::kErf, {1.0f})[0], at_one, 1e-6);
  EXPECT_NEAR(gelu(GeluForm::kTanh, {1.0f})[0], 0.841192, 1e-6);
}

TEST(GeluAndMulErrors, NameTensorAxisAndBothValues) {
  std::vector<float> x(12);
  const auto call = [&](std::initializer_list<int64_t> up) {
    gelu_and_mul({}, host_view(x.data(), {3, 4}), host_view(x.data(), {3, 4}),
                 host_view(x.data(), up), GeluForm::kErf);
  };
  testing::expect_invalid({"up.size(0) is 2, expected num_tokens = 3"}, [&] { call({2, 4}); });
}

}  // namespace
}  // namespace heddle
