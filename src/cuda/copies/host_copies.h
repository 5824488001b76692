#pragma once

#include <deque>
#include <vector>

#include "heddle/config.h"
#include "heddle/core/context.h"
#include "heddle/core/count.h"
#include "heddle/core/tensor_view.h"

namespace heddle::cuda {

/// Whether the stream is being captured, so that it cannot be waited for.
[[nodiscard]] bool is_captured(cudaStream_t stream);

/// Tensors of the device, copied to host memory in the order of a stream and kept there: what
/// HEDDLE_VALIDATE=1 looks at.
class HostCopies {
 public:
  explicit HostCopies(cudaStream_t stream) : stream_(stream) {}

  /// The tensor with its strides, gaps included. It may be read after wait(); absent ones stay
  /// absent.
  ConstTensorView operator()(const ConstTensorView& t);
  /// The same; what is written to it is lost.
  TensorView operator()(const TensorView& t);
  /// A count that lies on the device.
  Count operator()(const Count& count) {
    return count.on_device() ? Count((*this)(count.tensor())) : count;
  }
  void wait() const;

 private:
  std::byte* copy(const std::byte* first, DType dtype, std::span<const int64_t> shape,
                  std::span<const int64_t> strides);

  cudaStream_t stream_;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace heddle::cuda

namespace heddle {

/// For HEDDLE_VALIDATE: check(make(host)), where host(tensor) is the tensor in host memory, itself
/// or a copy; what `make` returns may hold views, which it does not read. Waits for the stream of a
/// CUDA context; leaves out the check while that is captured.
template <class Make, class Check>
void check_on_host(const ExecContext& ctx, const Make& make, const Check& check) {
  if (ctx.device.type == DeviceType::kCpu) {
    auto host = [](const auto& t) { return t; };
    check(make(host));
  } else if constexpr (kWithCuda) {
    if (cuda::is_captured(ctx.stream)) return;
    cuda::HostCopies host(ctx.stream);
    const auto arguments = make(host);
    host.wait();
    check(arguments);
  }
}

}  // namespace heddle
