#include "ops/linear/cpu/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/linear_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/linear/cpu/column-inl.h"
#include "ops/linear/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {

void linear_task(const LinearTask& task) {
  switch (task.type) {
    case WeightType::kF32: return run_task<WeightType::kF32>(task);
    case WeightType::kF16: return run_task<WeightType::kF16>(task);
    case WeightType::kBF16: return run_task<WeightType::kBF16>(task);
    case WeightType::kQ8_0: return run_task<WeightType::kQ8_0>(task);
    case WeightType::kQ4_0: return run_task<WeightType::kQ4_0>(task);
    case WeightType::kQ4_1: return run_task<WeightType::kQ4_1>(task);
    case WeightType::kQ4K: return run_task<WeightType::kQ4K>(task);
    default: return;  // the others have high bits: linear_high_bits_cpu.cpp
  }
}

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::linear {
HWY_EXPORT(linear_task);
void run_linear_task(const LinearTask& task) { HWY_DYNAMIC_DISPATCH(linear_task)(task); }
}  // namespace heddle::cpu::linear
#endif
