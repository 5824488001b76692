#include "model/weights/weight_upload.h"

#include <algorithm>

namespace heddle::model {
namespace {

constexpr size_t kBufferBytes = size_t{16} << 20;  // more only for a larger piece

}  // namespace

WeightUpload::WeightUpload(const ExecContext& ctx)
    : ctx_(ctx), buffers_{{Buffer(ctx.device), Buffer(ctx.device)}} {}

std::span<std::byte> WeightUpload::next(size_t num_bytes) {
  current_ = 1 - current_;
  Buffer& buffer = buffers_[current_];
  buffer.copied.wait();
  if (num_bytes > buffer.capacity) {
    buffer.capacity = std::max(num_bytes, kBufferBytes);
    buffer.memory = StagingBytes(ctx_.device, buffer.capacity);
  }
  piece_ = {buffer.memory.get(), num_bytes};
  return piece_;
}

void WeightUpload::send(std::byte* to) {
  begin_copy_from_host(ctx_, to, piece_);
  buffers_[current_].copied.record(ctx_);
}

void WeightUpload::finish() {
  for (const Buffer& buffer : buffers_) buffer.copied.wait();
}

}  // namespace heddle::model
