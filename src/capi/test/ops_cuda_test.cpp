// The table of the C interface on a GPU.
#include <string>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"
#include "heddle/ops/attention.h"

#include "capi/test/ops_test_body.h"
#include "device_mirror.h"

namespace heddle::testing {
namespace {

using CApiCudaTable = CudaTestWith<Family>;

TEST_P(CApiCudaTable, DoesWhatCppDoes) {
  heddle_context_options options;
  heddle_context_options_init(&options);
  options.device = {kDLCUDA, current_device()};
  const Context context(options);
  CudaContext same(Device{DeviceType::kCuda, current_device()}, nullptr, options.workspace_bytes);
  DeviceMirror mirror;
  expect_c_is_cpp(GetParam(), {context, same.exec(), mirror});
}

TEST_F(CudaTest, WorkspaceOfCBatchDecodeIsThatOfCpp) {
  const size_t bytes = heddle_batch_decode_workspace_bytes({kDLCUDA, 0}, 2, 2, 16);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, batch_decode_workspace_bytes({DeviceType::kCuda, 0}, 2, 2, 16));
}

INSTANTIATE_TEST_SUITE_P(Ops, CApiCudaTable, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle::testing
