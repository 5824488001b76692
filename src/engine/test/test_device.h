#pragma once

#include <cstdlib>
#include <string>

namespace heddle::testing {

/// Where engines of tests run: on the CPU, but for the value of HEDDLE_TEST_DEVICE.
inline std::string test_device() {
  const char* const device = std::getenv("HEDDLE_TEST_DEVICE");
  return device == nullptr ? "cpu" : device;
}

}  // namespace heddle::testing
