#pragma once

#include "heddle/core/cuda_context.h"

#include "device_mirror.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
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
    if (random_int(0, 3) > 0)
      ctx.exchange = context_.exec().exchange;  // else one block makes a list
    op(ctx, mirror);
  }
  // A mirrored call takes some thirty allocations and copies.
  [[nodiscard]] int rounds(int usual) const override { return small_or(2, usual / 10); }
  [[nodiscard]] int64_t many(int64_t usual) const override { return small_or<int64_t>(300, usual); }

 private:
  CudaContext context_{DeviceMirror().device(), nullptr, 0, size_t{1} << 14};
};

/// A body of the CPU's tests on the GPU, once for each layout of buffers that has kernels of its
/// own.
inline void on_cuda(void (*body)(const SpeculationRun&)) {
  for (const auto& [layout, name] : {std::pair{BufferLayout::kGeneral, "any"},
                                     {BufferLayout::kContiguous, "without gaps"},
                                     {BufferLayout::kContiguousInt32, "without gaps, i32"},
                                     {BufferLayout::kContiguousInt64, "without gaps, i64"}}) {
    SCOPED_TRACE(name);
    const ScopedBufferLayout scoped(layout);
    body(CudaRun());
  }
}

}  // namespace heddle::testing
