#pragma once

#include <initializer_list>

#include "cuda_test.h"

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"
#include "device_buffer.h"

namespace heddle::testing {

/// A DLTensor of memory on the current device.
class OnDevice {
 public:
  template <class T>
  OnDevice(const DeviceBuffer<T>& buffer, std::initializer_list<int64_t> shape)
      : tensor_(buffer.data(), shape) {
    tensor_.get()->device = {kDLCUDA, buffer.device().index};
  }
  [[nodiscard]] DLTensor* get() const { return tensor_.get(); }

 private:
  CTensor tensor_;
};

/// Tests of C functions on a GPU, with a context on the current device.
class CApiCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    heddle_context_options options;
    heddle_context_options_init(&options);
    options.device = {kDLCUDA, current_device()};
    expect_ok(heddle_context_create(&context_, &options));
  }
  void TearDown() override {
    heddle_context_destroy(context_);
    CudaTest::TearDown();
  }

  heddle_context* context_ = nullptr;
};

}  // namespace heddle::testing
