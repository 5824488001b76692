#pragma once

#include <cstdlib>
#include <string>

namespace heddle::testing {

/// Where engines of tests run: on the CPU, but for the value of HEDDLE_TEST_DEVICE.
inline std::string test_device() {
  const char* const device = std::getenv("HEDDLE_TEST_DEVICE");
  return device == nullptr ? "cpu" : device;
}

/// On a GPU weights and activations are rounded to 16 bits, prompts and drawn tokens take paths
/// whose bits differ, and the KV cache has the type of the activations.
inline bool is_on_cpu() { return test_device() == "cpu"; }

}  // namespace heddle::testing
