#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "cuda/exchange.h"

#include "core/math.h"

namespace heddle::cuda::speculation {

/// Where the blocks of a row bring together what they found; zero between launches.
struct NgramMeeting {
  unsigned long long best;  // of the blocks that have arrived: the key of an n-gram, 0: none
  uint32_t num_blocks;      // that have arrived
  uint32_t unused;
};
/// A meeting for each row that several blocks share.
inline constexpr ExchangeRange kNgramMeetings{8 << 10, 8 << 10};
inline constexpr int64_t kMaxNgramMeetings = kNgramMeetings.bytes / sizeof(NgramMeeting);

inline constexpr int kNgramThreads = 1024;

struct NgramLaunch {
  int blocks_per_row, threads;
  friend bool operator==(const NgramLaunch&, const NgramLaunch&) = default;
  friend std::ostream& operator<<(std::ostream& out, const NgramLaunch& launch) {
    return out << "blocks_per_row=" << launch.blocks_per_row << " threads=" << launch.threads;
  }
};

/// Several blocks share a row where rows are long and few: as many as the chip holds twice over,
/// up to 32, where the exchange has a meeting for each row.
[[nodiscard]] constexpr NgramLaunch select_ngram_launch(int64_t num_rows, int64_t max_tokens,
                                                        bool has_exchange, int num_sms) {
  constexpr int64_t kTokensPerBlock = 2048, kMaxBlocks = 32, kBlocksPerSm = 4;
  const bool can_share = has_exchange && num_rows <= kMaxNgramMeetings;
  const int64_t fit = std::min(
      {kMaxBlocks, kBlocksPerSm * num_sms / num_rows, ceil_div(max_tokens, kTokensPerBlock)});
  const int64_t blocks = can_share ? std::max<int64_t>(1, fit) : 1;
  return {static_cast<int>(blocks), max_tokens / blocks > 8192 ? kNgramThreads : 256};
}
static_assert(select_ngram_launch(1, 131072, true, 132) == NgramLaunch{32, 256});
static_assert(select_ngram_launch(256, 131072, true, 132) == NgramLaunch{2, 1024});
static_assert(select_ngram_launch(256, 2048, true, 132) == NgramLaunch{1, 256});
static_assert(select_ngram_launch(70000, 4096, true, 132) == NgramLaunch{1, 256});
static_assert(select_ngram_launch(512, 131072, true, 512) == NgramLaunch{4, 1024});
static_assert(select_ngram_launch(513, 131072, true, 512) == NgramLaunch{1, 1024});
static_assert(select_ngram_launch(1, int64_t{1} << 30, true, 132) == NgramLaunch{32, 1024});
static_assert(select_ngram_launch(1, 131072, false, 132) == NgramLaunch{1, 1024});

}  // namespace heddle::cuda::speculation
