#pragma once

#include "heddle/config.h"
#include "heddle/core/context.h"
#include "heddle/core/error.h"

namespace heddle {

/// For ops that also run on CUDA: refuses devices that this build has no kernels for.
inline void check_has_kernels(const ExecContext& ctx, const char* op) {
  if (ctx.device.type == DeviceType::kCpu) return;
  if (!kWithCuda || ctx.device.type != DeviceType::kCuda) {
    throw_error(ErrorCode::kUnsupported, op, ": no implementation for ", ctx.device);
  }
}

}  // namespace heddle
