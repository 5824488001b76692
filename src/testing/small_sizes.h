#pragma once

#include <cstdlib>

namespace heddle::testing {

/// Whether HEDDLE_TEST_SMALL=1 asks for small sizes, as tools/gpu_check does under
/// compute-sanitizer, where a kernel takes a hundred times as long, and ctest in the build with
/// sanitizers. Every branch of the code is still to be reached; only sizes and repetitions shrink.
inline bool small_sizes() {
  const char* value = std::getenv("HEDDLE_TEST_SMALL");
  return value != nullptr && value[0] == '1' && value[1] == '\0';
}
template <class T>
T small_or(T small, T usual) {
  return small_sizes() ? small : usual;
}

}  // namespace heddle::testing
