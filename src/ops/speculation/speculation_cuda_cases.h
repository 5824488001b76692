#pragma once

#include "heddle/core/device.h"

#include "device_mirror.h"
#include "ops/speculation/speculation_run_cases.h"
#include "small_sizes.h"

namespace heddle::testing {

/// Calls on the current CUDA device, tensors now between guards, now flush in their allocations.
class CudaRun final : public SpeculationRun {
 public:
  void call(Call op) const override {
    using Guards = DeviceMirror::Guards;
    DeviceMirror mirror(random_int(0, 1) == 1 ? Guards::kBoth : Guards::kFlush);
    ExecContext ctx;
    ctx.device = mirror.device();
    ctx.info = query_device(ctx.device);
    op(ctx, mirror);
  }
  // A mirrored call takes some thirty allocations and copies.
  [[nodiscard]] int rounds(int usual) const override { return small_or(3, usual / 5); }
  [[nodiscard]] int64_t many(int64_t usual) const override { return small_or<int64_t>(300, usual); }
};

}  // namespace heddle::testing
