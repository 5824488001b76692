#include "isa.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

namespace heddle::testing {

std::vector<int64_t> cpu_targets() {
  std::vector<int64_t> targets;
  const int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t bit = 1; bit > 0 && bit <= available; bit <<= 1) {  // Highway orders them best first
    if ((available & bit) != 0) targets.push_back(bit);
  }
  return targets;
}

std::string cpu_target_name(int64_t target) { return hwy::TargetName(target); }

bool has_fused_multiply_add(int64_t target) {
#if HWY_ARCH_X86
  return target <= HWY_AVX2;
#else
  return target != 0;
#endif
}

ScopedCpuTarget::ScopedCpuTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

ScopedCpuTarget::~ScopedCpuTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace heddle::testing
