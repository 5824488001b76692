#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/tensor_view.h"

namespace heddle::cuda {

/// Whether the stream's work is recorded: nothing of the device can be looked at then.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  HEDDLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

/// Tensors of the device, copied to host memory in the order of a stream and kept there, for HEDDLE_VALIDATE=1.
class HostCopies {
 public:
  explicit HostCopies(cudaStream_t stream) : stream_(stream) {}

  /// The tensor with its strides, gaps included. It may be read after wait().
  ConstTensorView operator()(const ConstTensorView& t) {
    if (!t) return t;  // absent
    const int64_t element = static_cast<int64_t>(size_of(t.dtype()));
    int64_t before = 0,
            behind = 0;  // bytes from element 0 to the first and the last one of the memory
    for (int d = 0; d < t.rank(); ++d) {
      const int64_t to_last = (t.size(d) - 1) * t.stride(d) * element;
      (to_last < 0 ? before : behind) += std::abs(to_last);
    }
    const int64_t bytes = t.num_elements() == 0 ? 0 : before + behind + element;
    if (bytes == 0) before = 0;
    std::vector<std::byte>& copy = copies_.emplace_back(bytes);
    if (bytes > 0) {
      HEDDLE_CUDA_CHECK(cudaMemcpyAsync(copy.data(), t.raw() - before, copy.size(),
                                        cudaMemcpyDeviceToHost, stream_));
    }
    return {copy.data() + before, t.dtype(), {}, t.shape(), t.strides()};
  }
  void wait() const { HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace heddle::cuda
