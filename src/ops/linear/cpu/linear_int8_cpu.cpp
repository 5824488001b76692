#include "ops/linear/cpu/int8_rows.h"
#include "ops/linear/cpu/linear_kernels.h"
#include "ops/linear/format/eight_bytes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/linear_int8_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/linear/cpu/int8_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {

void int8_task(const LinearTask& task, bool vnni) {
  switch (task.type) {
    case WeightType::kQ8_0: return run_int8<WeightType::kQ8_0>(task, vnni);
    case WeightType::kQ4_0: return run_int8<WeightType::kQ4_0>(task, vnni);
    case WeightType::kQ4_1: return run_int8<WeightType::kQ4_1>(task, vnni);
    case WeightType::kQ5_0: return run_int8<WeightType::kQ5_0>(task, vnni);
    case WeightType::kQ5_1: return run_int8<WeightType::kQ5_1>(task, vnni);
    case WeightType::kQ4K: return run_int8<WeightType::kQ4K>(task, vnni);
    case WeightType::kQ5K: return run_int8<WeightType::kQ5K>(task, vnni);
    case WeightType::kQ6K: return run_int8<WeightType::kQ6K>(task, vnni);
    default: return;  // dense types have no codes
  }
}

void int8_row(const float* x, const Int8Rows& row) {
  for (int64_t k = 0; k < row.in_features; k += kInt8Block) {
    round_block(x + k, row.codes + k, row.scales + k / kInt8Block, row.sums + k / kInt8Half);
  }
}

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::linear {
namespace {

bool has_vnni() {
#if HWY_ARCH_X86
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace

HWY_EXPORT(int8_task);
HWY_EXPORT(int8_row);
void run_int8_task(const LinearTask& task) { HWY_DYNAMIC_DISPATCH(int8_task)(task, has_vnni()); }
void round_row(const float* x, const Int8Rows& row) { HWY_DYNAMIC_DISPATCH(int8_row)(x, row); }
}  // namespace heddle::cpu::linear
#endif
