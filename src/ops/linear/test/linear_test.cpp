#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear/test/linear_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;
using testing::ScopedCpuTarget;

/// A random product and its exact results.
struct Case {
  WeightType type;
  int64_t out, in, tokens;
  std::vector<std::byte> stored;
  std::vector<float> x, bias, fused, rounded_twice;

  Case(WeightType t, int64_t num_out, int64_t num_in, int64_t num_tokens)
      : type(t),
        out(num_out),
        in(num_in),
        tokens(num_tokens),
        stored(random_stored(type, out * in, testing::rng())),
        x(testing::random_normal<float>(static_cast<size_t>(tokens * in))),
        bias(testing::random_normal<float>(static_cast<size_t>(out))) {
    std::vector<float> w(static_cast<size_t>(out * in));
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = ref::weight(type, stored.data(), static_cast<int64_t>(i));
    fused = ref::linear(w, x, out, in, ref::MultiplyAdd::kFused);
    rounded_twice = ref::linear(w, x, out, in, ref::MultiplyAdd::kRoundedTwice);
  }
  [[nodiscard]] const std::vector<float>& want(int64_t target) const {
    return testing::has_fused_multiply_add(target) ? fused : rounded_twice;
  }
  [[nodiscard]] std::vector<float> want_with_bias(int64_t target) const {
    std::vector<float> sums = want(target);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i % size_t(out)];
    return sums;
  }
};

/// x and y with gaps between their rows; those of x hold NaN, those of y must stay as they were.
struct Strided {
  static constexpr int64_t kGapX = 3, kGapY = 5;
  int64_t tokens, in, out;
  PoisonedBuffer<float> x, y;

  explicit Strided(const Case& c)
      : tokens(c.tokens),
        in(c.in),
        out(c.out),
        x(static_cast<size_t>(tokens * (in + kGapX))),
        y(static_cast<size_t>(tokens * (out + kGapY))) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(&c.x[size_t(t * in)], in, x.data() + t * (in + kGapX));
    }
  }
  ConstTensorView x_view() { return x.view({tokens, in + kGapX}).narrow(1, 0, in); }
  TensorView y_view() { return y.view({tokens, out + kGapY}).narrow(1, 0, out); }

  void expect(const std::vector<float>& want) const {
    EXPECT_TRUE(y.guards_intact());
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = y.data() + t * (out + kGapY);
      for (int64_t o = 0; o < out; ++o) {
        const float expected = want[size_t(t * out + o)];
        ASSERT_EQ(std::memcmp(&row[o], &expected, 4), 0)
            << "row " << t << " output " << o << ": " << row[o] << ", expected " << expected;
      }
      for (int64_t o = out; o < out + kGapY; ++o) {
        ASSERT_TRUE(y.untouched(size_t(t * (out + kGapY) + o))) << "row " << t << " past its end";
      }
    }
  }
};

class LinearTest : public ::testing::TestWithParam<WeightType> {
 protected:
  /// The product, alone and with a bias, on every target with 1, 2 and 3 threads.
  static void check(const Case& c) {
    const OwnedWeight weight(ExecContext{}, c.type, c.out, c.in, c.stored);
    for (const int64_t target : testing::cpu_targets()) {
      const ScopedCpuTarget scoped(target);
      for (const int num_threads : {1, 2, 3}) {
        SCOPED_TRACE(::testing::Message()
                     << testing::cpu_target_name(target) << ", " << num_threads << " threads, "
                     << c.tokens << " x " << c.out << " x " << c.in);
        ThreadPool threads(num_threads);
        ExecContext ctx;
        ctx.threads = &threads;
        Strided tensors(c);
        linear(ctx, tensors.y_view(), tensors.x_view(), weight.view());
        tensors.expect(c.want(target));
        if (::testing::Test::HasFatalFailure()) return;
        Strided with_bias(c);
        const LinearOutput output{with_bias.y_view(), weight.view(),
                                  host_view(c.bias.data(), {c.out})};
        linear(ctx, {&output, 1}, with_bias.x_view());
        with_bias.expect(c.want_with_bias(target));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
  static int64_t random_in(WeightType type) {
    const int64_t block = block_size(type);
    return block * testing::random_int(1, block == 256 ? 2 : block == 32 ? 6 : 200);
  }
};

TEST_P(LinearTest, EqualsTheLoopOverTheDequantisedMatrixForAnyNumberOfRows) {
  for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 25, 37}) {
    check(Case(GetParam(), testing::random_int(1, 90), random_in(GetParam()), tokens));
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearTest, EqualsTheLoopForRaggedOutputs) {
  for (const int64_t out : {1, 15, 16, 17, 33, 64, 65, 200}) {
    check(Case(GetParam(), out, random_in(GetParam()), testing::pick<int64_t>({1, 3, 10})));
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearTest, EqualsTheLoopBeyondOneBlockOfRows) {
  // Rows so long that a product takes no more than 192 of them at once.
  const int64_t in = block_size(GetParam()) * (768 / block_size(GetParam()));
  check(Case(GetParam(), 5, in, 200));
}

TEST_P(LinearTest, TakesNoTokensNoOutputsAndNoInputs) {
  const WeightType type = GetParam();
  const int64_t in = block_size(type);
  check(Case(type, 20, in, 0));
  const OwnedWeight no_outputs(type, 0, in), no_inputs(type, 5, 0);
  std::vector<float> x(size_t(2 * in), 1.0f);
  PoisonedBuffer<float> y(10);
  linear({}, y.view({2, 0}), host_view(x.data(), {2, in}), no_outputs.view());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(y.untouched(i));
  linear({}, y.view({2, 5}), host_view(x.data(), {2, 0}), no_inputs.view());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LinearTest, ::testing::ValuesIn(kAllWeightTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Linear, SeveralOutputsEqualOneCallEach) {
  for (const int64_t tokens : {1, 6, 40}) {
    constexpr int64_t kIn = 256;
    const std::vector<float> x = testing::random_normal<float>(size_t(tokens * kIn));
    const ConstTensorView x_view = host_view(x.data(), {tokens, kIn});
    std::vector<OwnedWeight> weights;
    std::vector<PoisonedBuffer<float>> together, alone;
    std::vector<LinearOutput> outputs;
    const std::vector<float> bias = testing::random_normal<float>(257);
    for (const auto& [type, out] :
         {std::pair{WeightType::kQ4_1, 192}, std::pair{WeightType::kQ6K, 70},
          std::pair{WeightType::kF16, 0}, std::pair{WeightType::kF32, 257}}) {
      const auto stored = random_stored(type, out * kIn, testing::rng());
      weights.emplace_back(ExecContext{}, type, out, kIn, stored);
      together.emplace_back(size_t(tokens * out));
      alone.emplace_back(size_t(tokens * out));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t out = weights[i].view().out_features;
      outputs.push_back({together[i].view({tokens, out}), weights[i].view()});
      if (i % 2 == 1) outputs.back().bias = host_view(bias.data(), {out});  // and the next without
      LinearOutput own = outputs.back();
      own.y = alone[i].view({tokens, out});
      linear({}, {&own, 1}, x_view);
    }
    ThreadPool threads(2);
    ExecContext ctx;
    ctx.threads = &threads;
    linear(ctx, outputs, x_view);
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_TRUE(testing::same_bits<float>({together[i].data(), together[i].size()},
                                            {alone[i].data(), alone[i].size()}))
          << tokens << " tokens, output " << i;
      EXPECT_TRUE(together[i].guards_intact());
    }
  }
  EXPECT_NO_THROW(
      linear({}, std::span<const LinearOutput>{}, host_view<const float>(nullptr, {0, 4})));
}

TEST(Linear, WithABiasIsTheDefinitionUpToTheRoundingOfTheSum) {
  const Case c(WeightType::kF32, 70, 96, 9);
  const OwnedWeight weight(ExecContext{}, c.type, c.out, c.in, c.stored);
  const auto bias = testing::random_normal<float>(size_t(c.out));
  Strided tensors(c);
  const LinearOutput output{tensors.y_view(), weight.view(), host_view(bias.data(), {c.out})};
  linear({}, {&output, 1}, tensors.x_view());
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t o = 0; o < c.out; ++o) {
      double want = bias[size_t(o)], magnitude = std::abs(want);
      for (int64_t k = 0; k < c.in; ++k) {
        const double product =
            double(ref::weight(c.type, c.stored.data(), o * c.in + k)) * c.x[size_t(t * c.in + k)];
        want += product;
        magnitude += std::abs(product);
      }
      const double got = tensors.y.data()[t * (c.out + Strided::kGapY) + o];
      EXPECT_TRUE(std::abs(got - want) <= magnitude * double(c.in + 1) * 0x1p-23)
          << "row " << t << " output " << o << ": " << got << ", expected " << want;
    }
  }
}

TEST(Linear, TakesABiasWithoutInputsTokensOrOutputs) {
  std::vector<float> x(64, 1.0f), bias{1.5f, -2.0f, 0.25f, 4.0f, -0.5f};
  const OwnedWeight no_inputs(WeightType::kQ8_0, 5, 0), no_outputs(WeightType::kQ8_0, 0, 32);
  PoisonedBuffer<float> y(10), untouched(4);
  LinearOutput output{y.view({2, 5}), no_inputs.view(), host_view(bias.data(), {5})};
  linear({}, {&output, 1}, host_view(x.data(), {2, 0}));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 5]) << i;
  output = {untouched.view({0, 5}), no_inputs.view(), host_view(bias.data(), {5})};
  linear({}, {&output, 1}, host_view(x.data(), {0, 0}));
  output = {untouched.view({2, 0}), no_outputs.view(), host_view(bias.data(), {0})};
  linear({}, {&output, 1}, host_view(x.data(), {2, 32}));
  for (size_t i = 0; i < untouched.size(); ++i) EXPECT_TRUE(untouched.untouched(i));
}

TEST(Linear, NamesWhatIsWrongWithABias) {
  const OwnedWeight weight(WeightType::kQ8_0, 40, 64);
  std::vector<float> x(size_t{3} * 64), y(size_t{3} * 40), bias(80);
  std::vector<half> bias16(40);
  const auto call = [&](ConstTensorView b) {
    const LinearOutput output{host_view(y.data(), {3, 40}), weight.view(), b};
    return testing::message_of([&] { linear({}, {&output, 1}, host_view(x.data(), {3, 64})); });
  };
  EXPECT_EQ(call(host_view(bias.data(), {40})), "no error");
  EXPECT_EQ(call(host_view(bias.data(), {48})),
            "bias.size(0) is 48, expected out_features of the weight = 40");
  EXPECT_EQ(call(host_view(bias.data(), {1, 40})), "bias has rank 2, expected 1");
  EXPECT_EQ(call(host_view(bias16.data(), {40})), "bias is f16, supported: f32");
  const ConstTensorView gaps(reinterpret_cast<const std::byte*>(bias.data()), DType::kFloat32,
                             Device{}, std::vector<int64_t>{40}, std::vector<int64_t>{2});
  EXPECT_EQ(call(gaps), "bias.stride(0) is 2, expected 1");
}

TEST(Linear, KeepsANaNToItsRow) {
  Case c(WeightType::kQ8_0, 40, 64, 20);
  c.x[size_t(7 * c.in + 5)] = NAN;
  const OwnedWeight weight(ExecContext{}, c.type, c.out, c.in, c.stored);
  PoisonedBuffer<float> y(size_t(c.tokens * c.out));
  linear({}, y.view({c.tokens, c.out}), host_view(c.x.data(), {c.tokens, c.in}), weight.view());
  for (int64_t i = 0; i < c.tokens * c.out; ++i)
    EXPECT_EQ(std::isnan(y[size_t(i)]), i / c.out == 7) << i;
}

TEST(Linear, NamesWhatIsWrong) {
  const OwnedWeight weight(WeightType::kQ8_0, 40, 64);
  std::vector<float> x(size_t{3} * 64), y(size_t{3} * 64);
  const ConstTensorView x_view = host_view(x.data(), {3, 64});
  const TensorView y_view = host_view(y.data(), {3, 40});
  const auto call = [](TensorView to, ConstTensorView from, const PackedWeight& w) {
    return testing::message_of([&] { linear({}, to, from, w); });
  };
  EXPECT_EQ(call(y_view, x_view, weight.view()), "no error");
  EXPECT_EQ(call(y_view, host_view(x.data(), {3, 32}), weight.view()),
            "x.size(1) is 32, expected in_features of the weight = 64");
  EXPECT_EQ(call(y_view, host_view(x.data(), {2, 64}), weight.view()),
            "y.size(0) is 3, expected num_tokens = 2");
  EXPECT_EQ(call(host_view(y.data(), {3, 48}), x_view, weight.view()),
            "y.size(1) is 48, expected out_features of the weight = 40");
  EXPECT_EQ(call(host_view(y.data(), {120}), x_view, weight.view()), "y has rank 1, expected 2");
  PackedWeight wrong = weight.view();
  wrong.in_features = 60;
  EXPECT_EQ(call(y_view, host_view(x.data(), {3, 60}), wrong),
            "60 weights of type Q8_0 are not a multiple of its block of 32");
  wrong = weight.view();
  wrong.data = nullptr;
  EXPECT_EQ(call(y_view, x_view, wrong), "linear: the weight [40, 64] has no data");
  std::vector<half> x16(size_t{3} * 64);
  EXPECT_EQ(call(y_view, host_view(x16.data(), {3, 64}), weight.view()),
            "x is f16, supported: f32");
  EXPECT_EQ(call(host_view(x16.data(), {3, 40}), x_view, weight.view()),
            "y is f16, supported: f32");
  const ConstTensorView columns(x_view.raw(), DType::kFloat32, Device{},
                                std::vector<int64_t>{3, 64}, std::vector<int64_t>{1, 3});
  EXPECT_EQ(call(y_view, columns, weight.view()), "x.stride(1) is 3, expected 1");
}

}  // namespace
}  // namespace heddle
