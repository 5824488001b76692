#include "core/staged_arrays.h"

#include <algorithm>

#include "heddle/core/error.h"

namespace heddle {

StagedArrays::StagedArrays(Device device, size_t capacity_bytes)
    : device_(device),
      capacity_bytes_(capacity_bytes),
      memory_(allocate_zeroed(device, capacity_bytes)),
      staging_(device.type == DeviceType::kCpu ? 0 : capacity_bytes) {}

const std::byte* StagedArrays::place(std::span<const std::byte> values) {
  const size_t begin = used_, end = begin + padded(values.size());
  if (end > capacity_bytes_) {
    throw_error(ErrorCode::kOutOfMemory, "the arrays of a step have room for ", capacity_bytes_,
                " bytes, needed ", end);
  }
  used_ = end;
  std::ranges::copy(values, (staging_.empty() ? memory_.get() : staging_.data()) + begin);
  return memory_.get() + begin;
}

void StagedArrays::copy(const ExecContext& ctx) const {
  if (!staging_.empty()) copy_from_host(ctx, memory_.get(), std::span(staging_).first(used_));
}

}  // namespace heddle
