#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/exchange.h"
#include "cuda/warp.h"

namespace heddle::cuda {

// Places in one list for the blocks of a launch, in the order of the blocks: each block tells how
// many places its threads take, and sums what the blocks before it told. Words in the context's
// exchange, with the number of the launch beside each sum, so that nothing has to be cleared; the
// first word is that number. A block waits only for blocks with lower indices, which started before
// it.

inline constexpr ExchangeRange kListSums{256, 8192 - 256};
inline constexpr int64_t kMaxListBlocks = kListSums.bytes / 8 - 1;

/// Where a launch of several blocks keeps its words; null where the exchange is too small.
[[nodiscard]] inline uint64_t* list_sums_of(std::span<std::byte> exchange) {
  return kListSums.words_in<uint64_t>(exchange);
}

#ifdef __CUDACC__

/// One thread's view of a launch. Without words the launch has one block.
class ListSums {
 public:
  /// Reads the number of the launch; early, since nothing waits for it until publish().
  __device__ explicit ListSums(uint64_t* words) : words_(words) {
    if (words_ != nullptr) launch_ = load(words_);
  }
  /// This block takes `sum` places. One thread calls it, once.
  __device__ void publish(uint32_t sum) const {
    if (words_ == nullptr) return;
    const uint64_t word = tag() << 32 | sum;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(words_ + 1 + blockIdx.x), "l"(word)
                 : "memory");
  }
  /// The places that the blocks before this one take. Called by whole warps, as many as need it.
  [[nodiscard]] __device__ uint32_t before() const {
    if (words_ == nullptr) return 0;
    uint32_t sum = 0;
    for (uint32_t b = threadIdx.x % 32; b < blockIdx.x; b += 32) {
      uint64_t word;
      do {
        word = load(words_ + 1 + b);
      } while (word >> 32 != tag());
      sum += static_cast<uint32_t>(word);
    }
    return __reduce_add_sync(kAllLanes, sum);
  }
  /// The last block's, behind before(): all blocks have read the number by then.
  __device__ void end_launch() const {
    if (words_ != nullptr) *words_ = tag();
  }

 private:
  [[nodiscard]] static __device__ uint64_t load(const uint64_t* at) {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
  }
  /// Never 0, which fresh memory holds: launches count 1 to 2^32 - 1, then from 1 again.
  [[nodiscard]] __device__ uint64_t tag() const { return launch_ < 0xffffffffu ? launch_ + 1 : 1; }

  uint64_t* words_;
  uint64_t launch_ = 0;
};

#endif

}  // namespace heddle::cuda
