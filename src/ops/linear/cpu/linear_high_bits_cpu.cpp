#include "ops/linear/cpu/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/linear_high_bits_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/linear/cpu/column-inl.h"
#include "ops/linear/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {

void high_bits_task(const LinearTask& task) {
  switch (task.type) {
    case WeightType::kQ5_0: return run_task<WeightType::kQ5_0>(task);
    case WeightType::kQ5_1: return run_task<WeightType::kQ5_1>(task);
    case WeightType::kQ5K: return run_task<WeightType::kQ5K>(task);
    case WeightType::kQ6K: return run_task<WeightType::kQ6K>(task);
    default: return;  // the others: linear_cpu.cpp
  }
}

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::linear {
HWY_EXPORT(high_bits_task);
void run_high_bits_task(const LinearTask& task) { HWY_DYNAMIC_DISPATCH(high_bits_task)(task); }
}  // namespace heddle::cpu::linear
#endif
