// The table of the C interface on a GPU.
#include <string>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

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

INSTANTIATE_TEST_SUITE_P(Ops, CApiCudaTable, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle::testing
