#include "core/staged_arrays.h"

#include <algorithm>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

namespace heddle {

StagedArrays::StagedArrays(Device device, size_t capacity_bytes)
    : device_(device),
      capacity_bytes_(capacity_bytes),
      memory_(allocate_zeroed(device, capacity_bytes)) {
  if (device.type == DeviceType::kCpu) return;
  const ScopedDevice on_device(device);
  for (int i = 0; i < 2; ++i) {
    staging_.push_back({StagingBytes(device, capacity_bytes), DeviceEvent(device)});
  }
}

void StagedArrays::clear() {
  used_ = filled_ = 0;
  if (staging_.empty()) return;
  current_ = 1 - current_;
  staging_[current_].copied.wait();
}

const std::byte* StagedArrays::place(std::span<const std::byte> values, size_t room) {
  const size_t begin = used_, end = begin + padded(room);
  if (end > capacity_bytes_) {
    throw_error(ErrorCode::kOutOfMemory, "the arrays of a step have room for ", capacity_bytes_,
                " bytes, needed ", end);
  }
  used_ = end;
  filled_ = begin + values.size();
  std::byte* const memory = staging_.empty() ? memory_.get() : staging_[current_].memory.get();
  std::ranges::copy(values, memory + begin);
  return memory_.get() + begin;
}

void StagedArrays::copy(const ExecContext& ctx) {
  if (staging_.empty() || filled_ == 0) return;
  Staging& staging = staging_[current_];
  constexpr size_t kWord = 4;  // of the last array there may be a part of one; it has padding
  begin_word_copy_from_host(ctx, memory_.get(), {staging.memory.get(), round_up(filled_, kWord)});
  staging.copied.record(ctx);
}

}  // namespace heddle
