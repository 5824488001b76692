#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::testing {

/// Highway's targets that this build has code for and this machine can run, best first.
std::vector<int64_t> cpu_targets();
std::string cpu_target_name(int64_t target);
/// Whether the target rounds a multiply-add once; bits of two such targets are equal where a
/// contract says so.
bool has_fused_multiply_add(int64_t target);

/// Restricts dynamic dispatch to one target while it lives.
class ScopedCpuTarget {
 public:
  explicit ScopedCpuTarget(int64_t target);
  ~ScopedCpuTarget();
  ScopedCpuTarget(const ScopedCpuTarget&) = delete;
  ScopedCpuTarget& operator=(const ScopedCpuTarget&) = delete;
};

}  // namespace heddle::testing
