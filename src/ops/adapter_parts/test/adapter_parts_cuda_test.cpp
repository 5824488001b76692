// The parts of adapters on a GPU: definitions, and the CPU's bits where they are promised.
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_mirror.h"
#include "ops/adapter_parts/test/adapter_parts_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class AdapterPartsCuda : public CudaTest {
 protected:
  template <class Check>
  void repeat(const Check& check) {
    DeviceMirror between_guards, flush(DeviceMirror::Guards::kFlush);
    for (int round = 0; round < small_or(8, 60) && !HasFailure(); ++round) {
      check(cuda_context(), round % 2 == 0 ? between_guards : flush);
    }
  }

  /// check(ctx, mirror) returns what it computed, of data that the generator gives.
  template <class Check>
  void expect_the_bits_of_the_cpu(const Check& check) {
    repeat([&](const ExecContext& ctx, Mirror& on) {
      const std::mt19937_64 data = rng();
      const std::vector<float> got = check(ctx, on);
      rng() = data;
      Mirror here;
      EXPECT_TRUE(same_bits<float>(got, check(ExecContext(), here)));
    });
  }
};

TEST_F(AdapterPartsCuda, AffinesHaveTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu(
      [](const ExecContext& ctx, Mirror& on) { return check_affines(ctx, on, false); });
  expect_the_bits_of_the_cpu(
      [](const ExecContext& ctx, Mirror& on) { return check_affines(ctx, on, true); });
}

TEST_F(AdapterPartsCuda, OwnRowsStandInPlaceOfOthers) {
  repeat([](const ExecContext& ctx, Mirror& on) { check_replace_rows(ctx, on); });
}

TEST_F(AdapterPartsCuda, LowRankRowsHaveTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu(
      [](const ExecContext& ctx, Mirror& on) { return check_low_rank_rows(ctx, on); });
}

TEST_F(AdapterPartsCuda, QuotientsByLengthsAreRoundedOnce) {
  repeat([](const ExecContext& ctx, Mirror& on) { check_divide_by_lengths(ctx, on); });
}

TEST_F(AdapterPartsCuda, OwnProductsEqualTheDefinitionAndTouchNothingElse) {
  repeat([](const ExecContext& ctx, Mirror& on) { check_linear_at<float>(ctx, on); });
  repeat([](const ExecContext& ctx, Mirror& on) { check_linear_at<half>(ctx, on); });
  repeat([](const ExecContext& ctx, Mirror& on) { check_linear_at<bfloat16>(ctx, on); });
}

}  // namespace
}  // namespace heddle::testing
