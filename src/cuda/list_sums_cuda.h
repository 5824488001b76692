#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/exchange.h"
#include "cuda/warp.h"

namespace heddle::cuda {

// Places in one list for the blocks of a launch: each block tells how many places its threads take,
// and sums what the blocks before it published. Words in the context's exchange, with the number of
// the launch next to each sum, so that nothing has to be cleared; the first word holds the tickets,
// the number of launches above that of blocks that have taken one.

/// Which blocks are before which. A chip may start blocks in any order, and some only when others
/// have ended; a block may wait only for such as run at the same time, or have ended.
enum class ListOrder {
  kLaunched,  // by blockIdx.x; for one block, or a cluster, whose blocks all run at once
  kStarted,   // a block takes a ticket when it starts, and works as the block of that number
};

inline constexpr ExchangeRange kListSums{256, 8192 - 256};
inline constexpr int64_t kMaxListBlocks = kListSums.bytes / 8 - 1;

/// Where a launch of several blocks keeps its words; null where the exchange is too small.
[[nodiscard]] inline uint64_t* list_sums_of(std::span<std::byte> exchange) {
  return kListSums.words_in<uint64_t>(exchange);
}

#ifdef __CUDACC__

/// One thread's view of a launch. Without words a list has one block.
template <ListOrder kOrder>
class ListSums {
 public:
  /// Asks for the number of the launch, or for a ticket; early, since nothing waits for it until
  /// block().
  __device__ explicit ListSums(uint64_t* words) : words_(words), block_(blockIdx.x) {
    if (words_ == nullptr) return;
    if constexpr (kOrder == ListOrder::kLaunched) {
      set_tag(load(words_));
    } else if (threadIdx.x == 0) {
      const uint64_t ticket = atomicAdd(reinterpret_cast<unsigned long long*>(words_), 1ull);
      block_ = static_cast<uint32_t>(ticket);
      set_tag(ticket);
    }
  }
  /// The number of this block. All threads of the block call it, once, before all that
  /// follows.
  [[nodiscard]] __device__ uint32_t block() {
    if (kOrder == ListOrder::kLaunched || words_ == nullptr) return block_;
    __shared__ uint32_t block, tag;
    if (threadIdx.x == 0) {
      block = block_;
      tag = tag_;
    }
    __syncthreads();
    block_ = block;
    tag_ = tag;
    if (threadIdx.x == 0 && is_last()) begin_next_launch();
    return block_;
  }
  /// Whether no block of the launch has a higher number.
  [[nodiscard]] __device__ bool is_last() const { return block_ + 1 == gridDim.x; }

  /// This block takes `sum` places. One thread calls it, once.
  __device__ void publish(uint32_t sum) const {
    if (words_ != nullptr) store(words_ + 1 + block_, uint64_t{tag_} << 32 | sum);
  }
  /// The places that the blocks before this one take. Called by whole warps, as many as need it;
  /// by that of publish() after it, and of the last block by its first warp.
  [[nodiscard]] __device__ uint32_t before() const {
    if (words_ == nullptr) return 0;
    uint32_t sum = 0;
    for (uint32_t b = threadIdx.x % 32; b < block_; b += 32) {
      uint64_t word;
      do {
        word = load(words_ + 1 + b);
      } while (static_cast<uint32_t>(word >> 32) != tag_);
      sum += static_cast<uint32_t>(word);
    }
    sum = __reduce_add_sync(kAllLanes, sum);
    // All blocks have told by now, and so have read the number of the launch.
    if (kOrder == ListOrder::kLaunched && is_last() && threadIdx.x == 0) begin_next_launch();
    return sum;
  }

 private:
  __device__ void set_tag(uint64_t ticket) {
    tag_ = static_cast<uint32_t>(ticket >> 32) + 1;
    if (tag_ == 0) tag_ = 1;
  }
  /// Called by the last block, when no block reads the first word any more. Also clears a word that
  /// this launch has no block for, another one each launch: 2^32 - 1 launches later, when its tag
  /// comes again, it would be taken for a new one.
  __device__ void begin_next_launch() const {
    store(words_, uint64_t{tag_} << 32);
    const uint32_t stale = tag_ % static_cast<uint32_t>(kMaxListBlocks);
    if (stale >= gridDim.x) store(words_ + 1 + stale, 0);
  }
  static __device__ void store(uint64_t* at, uint64_t word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
  }
  [[nodiscard]] static __device__ uint64_t load(const uint64_t* at) {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
  }

  uint64_t* words_;
  uint32_t block_;
  uint32_t tag_ = 0;  // of the launch: 1 to 2^32 - 1, then 1 again; never 0, as fresh memory is
};

#endif

}  // namespace heddle::cuda
