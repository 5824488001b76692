#pragma once

#include <initializer_list>
#include <string>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// A dimension that is unknown until the first tensor fixes it, then must agree everywhere else.
class Dim {
 public:
  explicit Dim(const char* name) : name_(name) {}
  Dim(const char* name, int64_t extent) : name_(name), extent_(extent) {}
  [[nodiscard]] int64_t value() const { return extent_; }
  [[nodiscard]] const char* name() const { return name_; }
  bool bind(int64_t extent) {
    if (extent_ == kUnbound) extent_ = extent;
    return extent_ == extent;
  }

 private:
  static constexpr int64_t kUnbound = -1;  // 0 is a legal extent: an empty batch must pass
  const char* name_;
  int64_t extent_ = kUnbound;
};

/// Binds `dims` to the shape of `t`; the error names the tensor, the axis and both extents.
inline void check_shape(const char* tensor, const ConstTensorView& t,
                        std::initializer_list<Dim*> dims) {
  HEDDLE_CHECK(t.rank() == static_cast<int>(dims.size()), tensor, " has rank ", t.rank(),
               ", expected ", dims.size());
  int d = 0;
  for (Dim* dim : dims) {
    HEDDLE_CHECK(dim->bind(t.size(d)), tensor, ".size(", d, ") is ", t.size(d), ", expected ",
                 dim->name(), " = ", dim->value());
    ++d;
  }
}

/// The last axis must be without gaps; all others may have any stride.
inline void check_unit_stride(const char* tensor, const ConstTensorView& t) {
  const int last = t.rank() - 1;
  HEDDLE_CHECK(last < 0 || t.size(last) <= 1 || t.stride(last) == 1, tensor, ".stride(", last,
               ") is ", t.rank() > 0 ? t.stride(last) : 0, ", expected 1");
}

inline void check_dtype(const char* tensor, const ConstTensorView& t,
                        std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed) {
    if (t.dtype() == dtype) return;
  }
  std::string list;
  for (const DType dtype : allowed) {
    list += std::string(list.empty() ? "" : ", ") + name(dtype);
  }
  throw_error(ErrorCode::kUnsupported, tensor, " is ", t.dtype(), ", supported: ", list);
}

/// A tensor and what errors call it, for the length of one call.
struct NamedTensor {
  const char* name;
  const ConstTensorView& tensor;
};

/// Every tensor must live where the context runs; absent ones (see BasicTensorView) pass.
inline void check_device(const ExecContext& ctx, std::initializer_list<NamedTensor> tensors) {
  for (const auto& [tensor, t] : tensors) {
    HEDDLE_CHECK(!t || t.device() == ctx.device, tensor, " is on ", t.device(),
                 ", the context runs on ", ctx.device);
  }
}

/// For ops that have a CPU implementation only.
inline void check_cpu(const ExecContext& ctx, const char* op) {
  if (ctx.device.type != DeviceType::kCpu) {
    throw_error(ErrorCode::kUnsupported, op, ": no implementation for ", ctx.device);
  }
}

}  // namespace heddle
