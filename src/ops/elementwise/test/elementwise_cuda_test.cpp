// The elementwise operations on a GPU: the CPU's bits where they are promised, definitions else.
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "compare.h"
#include "device_mirror.h"
#include "ops/elementwise/test/elementwise_ref.h"
#include "ops/elementwise/test/round_to_test_body.h"
#include "ops/elementwise/test/sum_rows_test_body.h"
#include "poison.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class ElementwiseCuda : public CudaTest {
 protected:
  /// x, and y with other gaps, of a random shape; `run(ctx, x, y)` is called for the GPU.
  struct Operands {
    int64_t rows = random_int(1, 40), width = pick<int64_t>({1, 31, 64, 576, 5000, 70001});
    int64_t stride = width + random_int(0, 3);
    std::vector<float> before = random_normal<float>(size_t(rows * width), pick({0.01f, 60.0f}));
    std::vector<float> more = random_normal<float>(size_t(rows * stride), 3.0f);
  };

  template <class Run>
  std::vector<float> after(const Operands& o, const Run& run) {
    DeviceMirror on(random_int(0, 1) == 0 ? DeviceMirror::Guards::kBoth
                                          : DeviceMirror::Guards::kFlush);
    PoisonedBuffer<float> x(size_t(o.rows * o.stride));
    for (int64_t r = 0; r < o.rows; ++r) {
      std::copy_n(&o.before[size_t(r * o.width)], o.width, x.data() + r * o.stride);
    }
    const ConstTensorView y = host_view(o.more.data(), {o.rows, o.stride}).narrow(1, 0, o.width);
    run(cuda_context(), on(x.view({o.rows, o.stride}).narrow(1, 0, o.width)), on(y));
    on.back();
    EXPECT_TRUE(x.guards_intact());
    std::vector<float> values;
    for (int64_t r = 0; r < o.rows; ++r) {
      const float* const row = x.data() + r * o.stride;
      values.insert(values.end(), row, row + o.width);
      for (int64_t i = o.width; i < o.stride; ++i) {
        EXPECT_TRUE(x.untouched(size_t(r * o.stride + i)));
      }
    }
    return values;
  }
};

TEST_F(ElementwiseCuda, AddAndScaleHaveTheBitsOfTheCpu) {
  for (int round = 0; round < small_or(6, 40); ++round) {
    const Operands o;
    std::vector<float> want = o.before;
    const ConstTensorView y = host_view(o.more.data(), {o.rows, o.stride}).narrow(1, 0, o.width);
    add({}, host_view(want.data(), {o.rows, o.width}), y);
    EXPECT_TRUE(same_bits<float>(
        after(o, [](const auto& ctx, auto x, auto on_gpu) { add(ctx, x, on_gpu); }), want));
    want = o.before;
    scale({}, host_view(want.data(), {o.rows, o.width}), 0.22f);
    EXPECT_TRUE(same_bits<float>(
        after(o, [](const auto& ctx, auto x, const auto&) { scale(ctx, x, 0.22f); }), want));
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(ElementwiseCuda, SoftCapEqualsTheDefinition) {
  for (int round = 0; round < small_or(6, 40); ++round) {
    Operands o;
    const float cap = pick({0.7f, 30.0f, 1e4f});
    o.before[0] = std::numeric_limits<float>::infinity();
    const std::vector<float> got =
        after(o, [&](const auto& ctx, auto x, const auto&) { soft_cap(ctx, x, cap); });
    EXPECT_EQ(got[0], cap);
    for (size_t i = 1; i < got.size(); ++i) {
      const double want = ref::soft_cap(o.before[i], cap);
      ASSERT_TRUE(std::abs(got[i] - want) <= std::abs(want) * 0x1p-20) << o.before[i];
    }
  }
}

TEST_F(ElementwiseCuda, RoundToRoundsOnce) {
  DeviceMirror between_guards, flush(DeviceMirror::Guards::kFlush);
  for (int round = 0; round < small_or(6, 60); ++round) {
    check_round_to<half>(cuda_context(), round % 2 == 0 ? between_guards : flush);
    check_round_to<bfloat16>(cuda_context(), round % 2 == 0 ? between_guards : flush);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(ElementwiseCuda, SumRowsAddsOneRowAfterTheOther) {
  DeviceMirror between_guards, flush(DeviceMirror::Guards::kFlush);
  for (int round = 0; round < small_or(6, 60); ++round) {
    DeviceMirror& on = round % 2 == 0 ? between_guards : flush;
    check_sum_rows<float>(cuda_context(), on);
    check_sum_rows<half>(cuda_context(), on);
    check_sum_rows<bfloat16>(cuda_context(), on);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::testing
