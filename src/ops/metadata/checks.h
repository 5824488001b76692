#pragma once

#include "heddle/core/check.h"

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

/// The same for a tensor that may be absent.
inline void check_optional_index_tensor(const ExecContext& ctx, const char* tensor,
                                        const ConstTensorView& t,
                                        std::initializer_list<Dim*> dims) {
  if (t) check_index_tensor(ctx, tensor, t, dims);
}

}  // namespace heddle
