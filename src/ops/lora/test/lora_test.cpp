#include "heddle/ops/lora.h"

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"

#include "exec_context.h"
#include "isa.h"
#include "ops/lora/test/sum_test_body.h"

namespace heddle {
namespace {

using testing::context_with;
using testing::LoraRun;
using testing::LoraSums;

template <class W>
class Lora : public ::testing::Test {
 protected:
  testing::Mirror mirror_;
};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(Lora, AllTypes);

TYPED_TEST(Lora, ShrinkAndExpandSumInThePromisedOrder) {
  ThreadPool pool(3);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    const LoraSums sums =
        testing::has_fused_multiply_add(target) ? LoraSums::kInOrder : LoraSums::kClose;
    for (int round = 0; round < 60; ++round) {
      const LoraRun run{context_with(round % 2 == 0 ? nullptr : &pool), this->mirror_, sums};
      const DType u = testing::pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
      const DType y = testing::pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
      dispatch_dtype<float, half, bfloat16>(u, "u", [&]<class U>() {
        dispatch_dtype<float, half, bfloat16>(
            y, "y", [&]<class Y>() { testing::RandomCall<U, TypeParam, Y>().run(run); });
      });
      ASSERT_FALSE(this->HasFatalFailure()) << "round " << round;
    }
  }
}

TYPED_TEST(Lora, TakesTheLargestRank) {
  testing::expect_takes_the_largest_rank<TypeParam>({{}, this->mirror_});
}

TYPED_TEST(Lora, ApplyHasTheBitsOfShrinkAndExpand) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      testing::expect_apply_has_the_bits_of_shrink_and_expand<half, TypeParam, float, bfloat16>(
          {context_with(&pool), this->mirror_}, testing::pick<int64_t>({1, 8, 270}), threads == 2);
    }
  }
}

TYPED_TEST(Lora, ARowAloneHasTheBitsItHasInABatch) {
  testing::expect_a_row_alone_has_the_bits_it_has_in_a_batch<float, TypeParam, float>(
      {{}, this->mirror_}, 21, 21);
}

TEST(LoraWorkspace, GrowsWithWhatACallHas) {
  const auto bytes = [](DeviceType device, int64_t tokens, int64_t in, int slices, int rank) {
    return lora_apply_workspace_bytes({device, 0}, tokens, in, slices, rank);
  };
  using enum DeviceType;
  EXPECT_EQ(bytes(kCpu, 8, 64, 3, 16), bytes(kCpu, 8, 4096, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 8, 4096, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 9, 64, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 1, 16), bytes(kCuda, 8, 64, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 8, 64, 3, 17));
  EXPECT_GE(bytes(kCuda, 300, 0, 1, 16), lora_plan_bytes(300, 16));
}

}  // namespace
}  // namespace heddle
