#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "cuda/exchange.h"

#include "core/math.h"

namespace heddle::cuda::speculation {

/// With several blocks a row: the number of the launch above that of its blocks that began, then
/// one word a block, the launch above what the block found.
inline constexpr ExchangeRange kNgramWords{8 << 10, 8 << 10};

inline constexpr int kNgramThreads = 1024;
/// What a block tells of its find: a place in its share in so many bits, and the length in the 10
/// above them.
inline constexpr int kNgramPlaceBits = 22;

struct NgramLaunch {
  int blocks_per_row, threads;
  friend bool operator==(const NgramLaunch&, const NgramLaunch&) = default;
  friend std::ostream& operator<<(std::ostream& out, const NgramLaunch& launch) {
    return out << "blocks_per_row=" << launch.blocks_per_row << " threads=" << launch.threads;
  }
};

/// Several blocks share a row where rows are long and few: as many as the chip holds twice over,
/// the exchange has words for, and the warp that brings their finds together has lanes.
[[nodiscard]] constexpr NgramLaunch select_ngram_launch(int64_t num_rows, int64_t max_tokens,
                                                        int64_t max_ngram, bool has_exchange,
                                                        int num_sms) {
  constexpr int64_t kTokensPerBlock = 2048, kMaxBlocks = 32, kBlocksPerSm = 4;
  const bool can_share =
      has_exchange && max_ngram < 1 << 10 && max_tokens <= int64_t{1} << kNgramPlaceBits;
  const int64_t words = static_cast<int64_t>(kNgramWords.bytes / 8) - 1;
  const int64_t fit = std::min({kMaxBlocks, words / num_rows, kBlocksPerSm * num_sms / num_rows,
                                ceil_div(max_tokens, kTokensPerBlock)});
  const int64_t blocks = can_share ? std::max<int64_t>(1, fit) : 1;
  return {static_cast<int>(blocks), max_tokens / blocks > 8192 ? kNgramThreads : 256};
}
static_assert(select_ngram_launch(1, 131072, 3, true, 132) == NgramLaunch{32, 256});
static_assert(select_ngram_launch(256, 131072, 3, true, 132) == NgramLaunch{2, 1024});
static_assert(select_ngram_launch(256, 2048, 3, true, 132) == NgramLaunch{1, 256});
static_assert(select_ngram_launch(70000, 4096, 3, true, 132) == NgramLaunch{1, 256});
static_assert(select_ngram_launch(1, 131072, 3, false, 132) == NgramLaunch{1, 1024});

}  // namespace heddle::cuda::speculation
