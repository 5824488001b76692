#pragma once

#include <gtest/gtest.h>

#include "heddle/core/context.h"

namespace heddle::testing {

/// Base of every test that runs kernels. Without a device the test is skipped, or fails with
/// HEDDLE_REQUIRE_CUDA=1, which tools/gpu_check sets. Afterwards the device must be idle and
/// without an error.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// A context on the current device without a workspace; nullptr: the default stream.
  [[nodiscard]] ExecContext cuda_context(cudaStream_t stream = nullptr) const;
};

/// For tests with parameters: class LoraShape : public CudaTestWith<Shape>.
template <class Param>
class CudaTestWith : public CudaTest, public ::testing::WithParamInterface<Param> {};

}  // namespace heddle::testing
