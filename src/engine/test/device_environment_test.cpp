// Where HEDDLE_TEST_DEVICE requests a GPU and none exists, all tests are skipped, or the program
// fails with HEDDLE_REQUIRE_CUDA=1, which tools/gpu_check sets.
#include <cstdlib>
#include <string_view>

#include <gtest/gtest.h>

#include "heddle/core/device.h"

#include "engine/test/test_device.h"

namespace heddle::testing {
namespace {

class DeviceEnvironment : public ::testing::Environment {
  void SetUp() override {
    if (is_on_cpu() || has_cuda()) return;
    const char* required = std::getenv("HEDDLE_REQUIRE_CUDA");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "HEDDLE_REQUIRE_CUDA=1, but there is no CUDA device";
    }
    GTEST_SKIP() << "no CUDA device";
  }
};

const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new DeviceEnvironment);

}  // namespace
}  // namespace heddle::testing
