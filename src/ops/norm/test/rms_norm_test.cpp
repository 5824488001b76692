#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "isa.h"
#include "ops/norm/test/rms_norm_test_body.h"

namespace heddle::testing {
namespace {

template <class Pair>
class RmsNorm : public ::testing::Test {
 protected:
  using T = typename Pair::Element;
  using W = typename Pair::Weight;

  /// body(width) on every target of the machine, for widths around those of vectors and of the 64
  /// sums.
  template <class Body>
  void for_each_target_and_width(const Body& body) {
    for (const int64_t target : cpu_targets()) {
      SCOPED_TRACE(cpu_target_name(target));
      const ScopedCpuTarget scoped(target);
      for (const int64_t width : {1, 2, 7, 15, 16, 17, 63, 64, 65, 100, 129, 576, 1537}) {
        SCOPED_TRACE(width);
        body(width);
      }
    }
  }
  Mirror on_;
};
TYPED_TEST_SUITE(RmsNorm, AllNormTypes);

TYPED_TEST(RmsNorm, EqualsTheDefinitionOnEveryTarget) {
  this->for_each_target_and_width([&](int64_t width) {
    expect_definition<typename TestFixture::T, typename TestFixture::W>({}, this->on_, width);
  });
}

TYPED_TEST(RmsNorm, FusedAddNormalisesTheRoundedResidual) {
  this->for_each_target_and_width([&](int64_t width) {
    expect_fused_add_normalises_the_rounded_residual<typename TestFixture::T,
                                                     typename TestFixture::W>({}, this->on_, width);
  });
}

TYPED_TEST(RmsNorm, Fp8IsTheRoundingOfTheF32Value) {
  this->for_each_target_and_width([&](int64_t width) {
    for (int round = 0; round < 3; ++round) {
      expect_fp8_is_the_rounding_of_the_f32_value<typename TestFixture::T, typename TestFixture::W>(
          {}, this->on_, width);
    }
  });
}

class RmsNormOfF32 : public RmsNorm<NormTypes<float, float>> {};

TEST_F(RmsNormOfF32, MayHaveAnOutputInF16OrBf16) {
  for_each_target_and_width([&](int64_t width) {
    expect_narrow_output_is_rounded_once<half>({}, on_, width);
    expect_narrow_output_is_rounded_once<bfloat16>({}, on_, width);
  });
}

TYPED_TEST(RmsNorm, BitsDependOnTheRowAlone) {
  using T = typename TestFixture::T;
  using W = typename TestFixture::W;
  const int64_t rows = 70, width = pick<int64_t>({577, 64, 1000});
  const NormProblem<T, W> p(rows, width);
  std::vector<T> first;
  for (const int64_t target : cpu_targets()) {
    if (!has_fused_multiply_add(target)) continue;
    const ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      ExecContext ctx;
      ctx.threads = &pool;
      const auto got = normalised_in_place(ctx, this->on_, p, p.input, RowLayout::any());
      if (first.empty()) first = got;
      EXPECT_TRUE(same_bits<T>(got, first)) << cpu_target_name(target);
      expect_bits_of_a_row_alone<T, W>(ctx, this->on_, rows, width);
    }
  }
}

TEST(RmsNormShapes, OuterAxesMayHaveAnyRankAndStrides) {
  Mirror on;
  ThreadPool pool(2);
  ExecContext ctx;
  ctx.threads = &pool;
  expect_any_rank_and_strides(ctx, on);
}

TEST(RmsNormShapes, EmptyTensorsAreANoOp) {
  Mirror on;
  expect_empty_tensors_are_a_no_op({}, on);
}

TEST(RmsNormValues, NanStaysInItsRow) {
  Mirror on;
  expect_nan_stays_in_its_row({}, on);
}

TEST(RmsNormValues, Fp8OfZerosAndNan) {
  Mirror on;
  for (const int64_t target : cpu_targets()) {
    const ScopedCpuTarget scoped(target);
    expect_fp8_of_zeros_and_nan({}, on);
  }
}

TEST(RmsNormErrors, NameTensorAxisAndBothValues) {
  std::vector<float> x(12, 1.0f);
  std::vector<half> h(12);
  std::vector<float8_e4m3> eighths(12);
  const TensorView y8 = host_view(eighths.data(), {3, 4});
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
              rms_norm({}, view({3, 4}), host_view(h.data(), {3, 4}), view({4}));
            }),
            "output is f32, but input is f16");
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
  EXPECT_EQ(message_of([&] {
              rms_norm({}, y8, view({3, 4}), view({4}));
            }),
            "output is f8e4m3, but of output_scale.fixed and output_scale.per_row none is given");
  RmsNormOptions options;
  options.output_scale.per_row = view({3});
  EXPECT_EQ(message_of([&] {
              rms_norm({}, view({3, 4}), view({3, 4}), view({4}), options);
            }),
            "output_scale is given, but output is f32, not f8e4m3");
  options.output_scale.per_row = view({2});
  EXPECT_EQ(message_of([&] {
              rms_norm({}, y8, view({3, 4}), view({4}), options);
            }),
            "output_scale.per_row.size(0) is 2, but input.size(0) is 3");
  options.output_scale = {.fixed = view({2}), .per_row = {}};
  EXPECT_EQ(message_of([&] {
              rms_norm({}, y8, view({3, 4}), view({4}), options);
            }),
            "output_scale.fixed has rank 1 and 2 elements, expected one element");
}

}  // namespace
}  // namespace heddle::testing
