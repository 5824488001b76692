#pragma once

#include <initializer_list>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/context.h"

namespace heddle {

inline void check_index_dtype(const char* tensor, const ConstTensorView& t) {
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
}

/// An i32 or i64 vector or matrix of the given extents, where the context runs.
inline void check_index_tensor(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                               std::initializer_list<Dim*> dims) {
  check_shape(tensor, t, dims);
  check_index_dtype(tensor, t);
  check_device(ctx, {{tensor, t}});
}

/// check_index_tensor() for a tensor that may be absent.
inline void check_optional_index_tensor(const ExecContext& ctx, const char* tensor,
                                        const ConstTensorView& t,
                                        std::initializer_list<Dim*> dims) {
  if (t) check_index_tensor(ctx, tensor, t, dims);
}

/// That this build has kernels for the context's device.
inline void check_kernels(const ExecContext& ctx, const char* op) {
  if (!kWithCuda && ctx.device.type == DeviceType::kCuda) {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

namespace cuda::metadata {

/// See heddle::check_on_host.
void check_on_host(const ExecContext& ctx, std::initializer_list<ConstTensorView*> tensors,
                   FunctionRef<void()> check);

}  // namespace cuda::metadata

/// What HEDDLE_VALIDATE=1 does: check(), once these tensors are in host memory. Where they lie
/// on a device, the views are replaced by those of copies, taken in the order of the stream; during
/// a capture, when nothing can be read, check is left out.
inline void check_on_host(const ExecContext& ctx, std::initializer_list<ConstTensorView*> tensors,
                          FunctionRef<void()> check) {
  if (ctx.device.type == DeviceType::kCpu) {
    check();
  } else if constexpr (kWithCuda) {
    cuda::metadata::check_on_host(ctx, tensors, check);
  }
}

}  // namespace heddle
