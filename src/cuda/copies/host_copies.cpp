#include "cuda/copies/host_copies.h"

#include "cuda/check.h"

namespace heddle::cuda {

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  HEDDLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

std::byte* HostCopies::copy(const std::byte* first, DType dtype, std::span<const int64_t> shape,
                            std::span<const int64_t> strides) {
  int64_t before = 0, after = 0;  // elements before the first one, and from it to the last
  bool is_empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    is_empty |= shape[d] == 0;
    const int64_t reach = (shape[d] - 1) * strides[d];
    (reach < 0 ? before : after) += reach;
  }
  const auto element = static_cast<int64_t>(size_of(dtype));
  const int64_t elements = is_empty ? 0 : after - before + 1;
  std::vector<std::byte>& bytes = copies_.emplace_back(size_t(elements * element));
  if (elements == 0) return bytes.data();
  HEDDLE_CUDA_CHECK(cudaMemcpyAsync(bytes.data(), first + before * element, bytes.size(),
                                    cudaMemcpyDeviceToHost, stream_));
  return bytes.data() - before * element;
}

ConstTensorView HostCopies::operator()(const ConstTensorView& t) {
  if (!t) return t;
  return {copy(t.raw(), t.dtype(), t.shape(), t.strides()), t.dtype(), {}, t.shape(), t.strides()};
}

TensorView HostCopies::operator()(const TensorView& t) {
  if (!t) return t;
  return {copy(t.raw(), t.dtype(), t.shape(), t.strides()), t.dtype(), {}, t.shape(), t.strides()};
}

void HostCopies::wait() const { HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

}  // namespace heddle::cuda
