#pragma once

#include <cstdint>

#include "heddle/ops/lora_table.h"

namespace heddle {

/// What CUDA kernels load at a time of a weight that they need not ask.
inline constexpr int64_t kVectorBytes = 16;
/// Elements between rows, at most: offsets in 256 of them then fit 32 bits.
inline constexpr int64_t kMaxVectorStride = int64_t{1} << 22;
/// The ranks of an aligned table are multiples of this.
[[nodiscard]] constexpr int64_t lora_rank_unit(int64_t rank) { return rank <= 16 ? 4 : 8; }

namespace cuda::lora {
/// entries[i] = value for i in [0, count), in the order of the stream.
void write_entries(LoraWeight* entries, int64_t count, const LoraWeight& value,
                   cudaStream_t stream);
}  // namespace cuda::lora
}  // namespace heddle
