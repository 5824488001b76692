#pragma once

// What the tests of attention on a GPU share: tests of the kernels run the bodies of the CPU's
// tests through a DeviceMirror.

#include <optional>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "device_mirror.h"
#include "ops/attention/test/random_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {

/// T: dtype of q, and of the cache where nothing else is said.
template <class T>
class AttentionCuda : public CudaTest {
 protected:
  using Guards = DeviceMirror::Guards;

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context_.emplace(cuda_context().device, nullptr, 0);
  }
  void TearDown() override {
    context_.reset();
    CudaTest::TearDown();
  }
  /// Calls on the default stream with the context's exchange; workspaces come from the run. Tensors
  /// lie between guards, or flush with their allocations, so that compute-sanitizer sees a read
  /// past them.
  [[nodiscard]] AttentionRun run(Guards guards = Guards::kBoth) {
    return {context_->exec(), guards == Guards::kBoth ? between_guards_ : flush_, true};
  }
  /// Allocations take most of a round, so few have them.
  [[nodiscard]] AttentionRun any_run() {
    return run(random_int(0, small_or(1, 7)) == 0 ? Guards::kFlush : Guards::kBoth);
  }

  /// Random calls against the definition in double: `rounds`, or few of a tile or two each at small
  /// sizes. TKV: dtype of the cache.
  template <class TKV = T>
  void expect_agreement(AttentionLimits limits, int rounds) {
    limits.may_rotate = run().template can_rotate<TKV>();
    limits.longest = small_or<int64_t>(90, limits.longest);
    limits.max_seqs = small_or<int64_t>(2, limits.max_seqs);
    for (int round = 0; round < small_or(12, rounds); ++round) {
      const AttentionCase c = random_case(limits);
      SCOPED_TRACE(::testing::Message() << c << " " << kDType<T> << " over " << kDType<TKV>);
      AttentionCheck<T, TKV>(c).run(any_run());
      ASSERT_FALSE(HasFailure()) << "round " << round;
    }
  }

 private:
  std::optional<CudaContext> context_;
  DeviceMirror between_guards_, flush_{Guards::kFlush};
};
using HalfTypes = ::testing::Types<half, bfloat16>;

}  // namespace heddle::testing
