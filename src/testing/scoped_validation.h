#pragma once

#include <cstdlib>

namespace heddle::testing {

/// HEDDLE_VALIDATE=1 while it lives. The environment belongs to the process: for tests without
/// other threads at work.
class ScopedValidation {
 public:
  ScopedValidation() { ::setenv("HEDDLE_VALIDATE", "1", 1); }
  ~ScopedValidation() { ::unsetenv("HEDDLE_VALIDATE"); }
  ScopedValidation(const ScopedValidation&) = delete;
  ScopedValidation& operator=(const ScopedValidation&) = delete;
};

}  // namespace heddle::testing
