#include "heddle/ops/lora.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"

#include "compare.h"
#include "exec_context.h"
#include "isa.h"
#include "ops/lora/test/sum_test_body.h"
#include "small_sizes.h"

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
    for (int round = 0; round < testing::small_or(15, 60); ++round) {
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

/// A stack [slots, rows, columns] and the same values with gaps of NaN.
struct Stacks {
  std::array<int64_t, 3> shape;
  std::vector<float> dense, gapped;

  Stacks(int64_t slots, int64_t rows, int64_t columns)
      : shape{slots, rows, columns},
        dense(testing::random_normal<float>(static_cast<size_t>(slots * rows * columns))),
        gapped(static_cast<size_t>(slots * strides()[0]), NAN) {
    for (int64_t i = 0; i < std::ssize(dense); ++i) {
      const int64_t at = i / columns / rows * strides()[0] + i / columns % rows * strides()[1];
      gapped[static_cast<size_t>(at + i % columns)] = dense[static_cast<size_t>(i)];
    }
  }
  [[nodiscard]] std::array<int64_t, 3> strides() const {
    return {shape[1] * (shape[2] + 3) + 5, shape[2] + 3, 1};
  }
  [[nodiscard]] ConstTensorView without_gaps() const {
    return host_view(dense.data(), {shape[0], shape[1], shape[2]});
  }
  [[nodiscard]] ConstTensorView with_gaps() const {
    return {
        reinterpret_cast<const std::byte*>(gapped.data()), DType::kFloat32, {}, shape, strides()};
  }
};

/// As the contract says of strides: a stack may have gaps.
TEST(LoraStacks, GapsBehindRowsAndSlotsDoNotShow) {
  constexpr int64_t kTokens = 21, kSlots = 3, kRank = 5, kFeatures = 43;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<int32_t>(t % (kSlots + 1)) - 1);
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {kTokens}));
  const auto x = testing::random_normal<float>(size_t{kTokens * kFeatures});
  const auto h = testing::random_normal<float>(size_t{kTokens * kRank});
  for (const LoraLayout layout : {LoraLayout::kRankMajor, LoraLayout::kRankMinor}) {
    const bool rank_major = layout == LoraLayout::kRankMajor;
    const Stacks stacks(kSlots, rank_major ? kRank : kFeatures, rank_major ? kFeatures : kRank);
    const auto shrunk = [&](const ConstTensorView& a) {
      std::vector<float> y(size_t{kTokens * kRank}, 1.0f);
      lora_shrink({}, host_view(y.data(), {kTokens, kRank}),
                  host_view(x.data(), {kTokens, kFeatures}), a, batch, 1.0f, true, layout);
      return y;
    };
    const auto expanded = [&](const ConstTensorView& b) {
      std::vector<float> y(size_t{kTokens * kFeatures}, 1.0f);
      lora_expand({}, host_view(y.data(), {kTokens, kFeatures}),
                  host_view(h.data(), {kTokens, kRank}), b, batch, 0, 1.0f, true, layout);
      return y;
    };
    const std::vector<float> y = shrunk(stacks.without_gaps());
    EXPECT_NE(y, std::vector<float>(y.size(), 1.0f));
    EXPECT_TRUE(testing::same_bits<float>(shrunk(stacks.with_gaps()), y));
    EXPECT_TRUE(
        testing::same_bits<float>(expanded(stacks.with_gaps()), expanded(stacks.without_gaps())));
  }
}

/// Widths and ranks at the borders of every block of the loops, one below and one above, with one
/// thread and with more.
TEST(LoraStacks, EveryColumnOfWideProductsIsTheirSum) {
  constexpr int64_t kTokens = 9, kSlots = 2;
  constexpr int64_t kWidths[] = {1,   15,  16,   127,  128,  129,  255,  256,  257,  511,
                                 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 4097};
  constexpr int64_t kRanks[] = {1, 8, 31, 32, 33, 64, 65, 127, 128, 129, 256, 512};
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<int32_t>(t % (kSlots + 1)) - 1);
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {kTokens}));
  ThreadPool pool(3);
  size_t next = 0;
  for (const int64_t width : kWidths) {
    for (int i = 0; i < 3; ++i) {
      const int64_t rank = kRanks[next++ % std::size(kRanks)];
      const auto w = testing::random_normal<float>(static_cast<size_t>(kSlots * rank * width));
      for (const bool is_shrink : {true, false}) {
        const int64_t in = is_shrink ? width : rank, out = is_shrink ? rank : width;
        const auto x = testing::random_normal<float>(static_cast<size_t>(kTokens * in));
        std::vector<double> want(static_cast<size_t>(kTokens * out), 0.0);
        for (int64_t t = 0; t < kTokens; ++t) {
          const int64_t slot = ids[static_cast<size_t>(t)];
          for (int64_t o = 0; slot >= 0 && o < out; ++o) {
            for (int64_t k = 0; k < in; ++k) {
              want[static_cast<size_t>(t * out + o)] +=
                  double{x[static_cast<size_t>(t * in + k)]} *
                  double{w[static_cast<size_t>((slot * out + o) * in + k)]};
            }
          }
        }
        for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
          std::vector<float> y(want.size(), 0.0f);
          const TensorView view = host_view(y.data(), {kTokens, out});
          const ConstTensorView input = host_view(x.data(), {kTokens, in});
          const ConstTensorView weight = host_view(w.data(), {kSlots, out, in});
          // A row of A is a rank's, and a row of B an output's.
          if (is_shrink) {
            lora_shrink(context_with(threads), view, input, weight, batch, 1.0f, true,
                        LoraLayout::kRankMajor);
          } else {
            lora_expand(context_with(threads), view, input, weight, batch, 0, 1.0f, true,
                        LoraLayout::kRankMinor);
          }
          EXPECT_LT(testing::relative_error<float>(y, want), testing::tolerance<float>(in))
              << (is_shrink ? "shrink" : "expand") << " of " << width << " at rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
