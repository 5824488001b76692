#pragma once

#include <cstdint>
#include <span>

#include "heddle/ops/lora_table.h"

namespace heddle {

/// Bytes that CUDA kernels load at a time of weights that the table promises to be aligned.
inline constexpr int64_t kVectorBytes = 16;
/// Elements between rows, at most. Offsets in 256 rows then fit 32 bits.
inline constexpr int64_t kMaxVectorStride = int64_t{1} << 22;
/// Ranks of an aligned table are multiples of this: 4 up to 16, else 8.
[[nodiscard]] constexpr int64_t lora_rank_unit(int64_t rank) { return rank <= 16 ? 4 : 8; }

namespace cuda::lora {
/// entries[i] = value for i in [0, count), in the order of the stream.
void write_entries(LoraWeight* entries, int64_t count, const LoraWeight& value,
                   cudaStream_t stream);
/// *entry = value for each of them, in the order of the stream.
void change_entries(std::span<const LoraEntryChange> changes, cudaStream_t stream);
}  // namespace cuda::lora
}  // namespace heddle
