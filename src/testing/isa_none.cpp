// In place of isa.cpp where a build has no CPU kernels: no target.
#include "isa.h"

namespace heddle::testing {

std::vector<int64_t> cpu_targets() { return {}; }
std::string cpu_target_name(int64_t) { return "none"; }

}  // namespace heddle::testing
