#pragma once

// How a kernel reports a wrong index. It goes on without the row:
//
//   if (slot >= num_slots) {                                       // one comparison
//     report_fault(p.faults, "gather", "slots", row, slot);        // a call, of that row alone
//     return;
//   }
//
// p.faults is ExecContext::faults, and may be null. Names are literals, shorter than
// FaultRecord::kNameBytes.

#include <cstdint>

#include "cuda/fault.h"

namespace heddle::cuda {

__device__ inline void copy_name(char* to, const char* name) {
#pragma unroll 1
  for (size_t i = 0; i + 1 < FaultRecord::kNameBytes && *name != '\0'; ++i) *to++ = *name++;
  *to = '\0';
}

/// report_fault as a part of the kernel's own code, for kernels that call no function.
__device__ __forceinline__ void report_fault_inline(FaultRecord* faults, const char* op,
                                                    const char* array, int64_t row, int64_t value) {
  if (faults == nullptr) return;
  const uint32_t told = *static_cast<const volatile uint32_t*>(&faults->told);
  if (atomicCAS(faults->claimed, told, told + 1) != told) return;
  copy_name(faults->op, op);
  copy_name(faults->array, array);
  faults->row = row;
  faults->value = value;
  __threadfence_system();
  *static_cast<volatile uint32_t*>(&faults->written) = told + 1;
}
/// Leaves a fault for the host, unless one lies there already. By any thread; not part of the
/// kernel's own code, so that it holds no register there.
__device__ inline __noinline__ void report_fault(FaultRecord* faults, const char* op,
                                                 const char* array, int64_t row, int64_t value) {
  report_fault_inline(faults, op, array, row, value);
}

}  // namespace heddle::cuda
