#pragma once

#include <vector>

#include "bindings/arrays.h"
#include "bindings/contexts.h"

namespace heddle::python {

/// One call of an operation from Python: takes views of its arrays, finds the context, runs without
/// the GIL.
///
///   Call call;
///   const TensorView y = call.out("y", y_array);
///   const ConstTensorView x = call.in("x", x_array);
///   call.run([&](const ExecContext& ctx) { heddle::op(ctx, y, x); });
class Call {
 public:
  [[nodiscard]] TensorView out(const char* name, nb::handle array) {
    return arrays_.borrow(name, array, Access::kWrite);
  }
  [[nodiscard]] ConstTensorView in(const char* name, nb::handle array) {
    return arrays_.borrow(name, array, Access::kRead);
  }

  /// A tensor that is only read, as the mutable view that structs such as PagedKv hold for readers
  /// and writers alike.
  [[nodiscard]] TensorView in_place(const char* name, nb::handle array) {
    return arrays_.borrow(name, array, Access::kRead);
  }

  /// Views of a tensor that may be None: the view is then absent.
  [[nodiscard]] TensorView optional_out(const char* name, nb::handle array) {
    return array.is_none() ? TensorView{} : out(name, array);
  }
  [[nodiscard]] ConstTensorView optional_in(const char* name, nb::handle array) {
    return array.is_none() ? ConstTensorView{} : in(name, array);
  }

  /// Several tensors, given as a list or tuple. Errors name one by its place: "states[2]".
  [[nodiscard]] std::vector<TensorView> outs(const char* name, nb::handle arrays) {
    return arrays_.borrow_all<TensorView>(name, arrays, Access::kWrite);
  }
  [[nodiscard]] std::vector<ConstTensorView> ins(const char* name, nb::handle arrays) {
    return arrays_.borrow_all<ConstTensorView>(name, arrays, Access::kRead);
  }

  /// use(name, item) for each item of a list or tuple, which may be arrays or not.
  template <class Use>
  void for_each(const char* name, nb::handle list, const Use& use) {
    arrays_.for_each(name, list, use);
  }

  [[nodiscard]] Device device() const { return arrays_.device(); }

  /// body(context) without the GIL, on the device of the arrays. The workspace holds at least
  /// workspace_bytes.
  template <class Body>
  void run(Body&& body, size_t workspace_bytes = 0) {
    run_with(body, workspace_bytes, Kernels::kCpuAndCuda);
  }
  /// Runs an operation without CUDA kernels.
  template <class Body>
  void run_on_cpu(Body&& body, size_t workspace_bytes = 0) {
    run_with(body, workspace_bytes, Kernels::kCpu);
  }

 private:
  template <class Body>
  void run_with(Body&& body, size_t workspace_bytes, Kernels kernels) {
    nb::gil_scoped_release unlocked;
    const ContextLease lease(arrays_.device(), arrays_.stream(), workspace_bytes, kernels);
    body(lease.context());
  }

  BorrowedArrays arrays_;
};

}  // namespace heddle::python
