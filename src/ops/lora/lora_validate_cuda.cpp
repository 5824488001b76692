#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "cuda/check.h"

#include "ops/lora/lora_validate.h"

namespace heddle::cuda {
namespace {

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  HEDDLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

/// Vectors of the device, copied to host memory in the order of a stream and kept there.
class HostCopies {
 public:
  explicit HostCopies(cudaStream_t stream) : stream_(stream) {}

  /// The vector with its stride, gaps included. It may be read after wait().
  ConstTensorView operator()(const ConstTensorView& t) {
    if (!t) return t;  // absent
    const int64_t element = static_cast<int64_t>(size_of(t.dtype()));
    const int64_t to_last = (t.size(0) - 1) * t.stride(0) * element;
    const int64_t before = std::max<int64_t>(0, -to_last);  // bytes in front of element 0
    const int64_t bytes = t.size(0) == 0 ? 0 : std::abs(to_last) + element;
    std::vector<std::byte>& copy = copies_.emplace_back(bytes);
    if (bytes > 0) {
      HEDDLE_CUDA_CHECK(cudaMemcpyAsync(copy.data(), t.raw() - before, copy.size(),
                                        cudaMemcpyDeviceToHost, stream_));
    }
    return {copy.data() + before, t.dtype(), {}, t.shape(), t.strides()};
  }
  LoraTable operator()(const LoraTable& table) {
    LoraTable result = table;
    if (table.pointers == nullptr) return result;
    const std::array<int64_t, 1> shape{table.num_slots}, strides{table.pointer_stride};
    const ConstTensorView there(reinterpret_cast<const std::byte*>(table.pointers), DType::kInt64,
                                table.device, shape, strides);
    result.pointers = (*this)(there).data<int64_t>();
    return result;
  }
  void wait() const { HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace

void validate_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                    const LoraTable* a, const LoraTable* b) {
  if (is_captured(ctx.stream)) return;
  HostCopies copy(ctx.stream);
  LoraBatch on_host;
  on_host.slot_ids = copy(batch.slot_ids);
  on_host.seg_starts = copy(batch.seg_starts);
  on_host.seg_ends = copy(batch.seg_ends);
  on_host.seg_slots = copy(batch.seg_slots);
  on_host.pair_starts = copy(batch.pair_starts);
  on_host.pair_slots = copy(batch.pair_slots);
  on_host.max_pairs = batch.max_pairs;
  const LoraTable a_on_host = a != nullptr ? copy(*a) : LoraTable{};
  const LoraTable b_on_host = b != nullptr ? copy(*b) : LoraTable{};
  copy.wait();
  if (a != nullptr) heddle::validate_batch(on_host, num_tokens, "a", a_on_host);
  if (b != nullptr) heddle::validate_batch(on_host, num_tokens, "b", b_on_host);
}

}  // namespace heddle::cuda
