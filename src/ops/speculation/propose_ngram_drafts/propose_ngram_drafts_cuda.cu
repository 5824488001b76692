#include <algorithm>
#include <limits>

#include "cuda/check.h"
#include "cuda/index_cuda.h"
#include "cuda/load_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "heddle/core/error.h"

#include "core/kernel_log.h"
#include "ops/speculation/propose_ngram_drafts/propose_ngram_drafts_cuda.h"
#include "ops/speculation/propose_ngram_drafts/propose_ngram_drafts_kernels.h"

namespace heddle::cuda::speculation {
namespace {

constexpr int kLoadsAtOnce = 8;

/// NgramParams, with what a launch adds.
struct DeviceNgram : NgramParams {
  uint32_t blocks_per_row;
  NgramMeeting* meetings;  // [num_rows], null where a row has one block

  DeviceNgram(const NgramParams& p, uint32_t blocks, std::span<std::byte> exchange)
      : NgramParams(p),
        blocks_per_row(blocks),
        meetings(blocks > 1 ? kNgramMeetings.words_in<NgramMeeting>(exchange) : nullptr) {}

  [[nodiscard]] __device__ bool takes_first() const { return match == NgramMatch::kFirst; }
};

/// The length of an n-gram above what prefers one of its occurrences; the larger of two is the
/// better one. 0: none.
__device__ uint64_t key_of(const DeviceNgram& p, int64_t n, int64_t end) {
  return static_cast<uint64_t>(n) << 32 | static_cast<uint32_t>(p.takes_first() ? ~end : end);
}

/// The best n-gram that ends with token `end`, which equals the last one.
__device__ uint64_t ngram_at(const DeviceNgram& p, const cpu::IndexArray& tokens, int64_t length,
                             int64_t end) {
  const int64_t most = p.max_ngram < end + 1 ? p.max_ngram : end + 1;
  int64_t n = 0;
  while (n < most && tokens[end - n] == tokens[length - 1 - n]) ++n;
  return n >= p.min_ngram ? key_of(p, n, end) : 0;
}

/// Of tokens [begin, end), which lie before the last one. All threads of a block share them.
__device__ uint64_t search(const DeviceNgram& p, const cpu::IndexArray& tokens, int64_t length,
                           int64_t begin, int64_t end) {
  uint64_t best = 0;
  const uint32_t last = low_word(tokens.address(length - 1));
  for (int64_t at = begin + threadIdx.x; at < end; at += int64_t{kLoadsAtOnce} * blockDim.x) {
    uint32_t low[kLoadsAtOnce];
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k) {
      const int64_t i = at + int64_t{k} * blockDim.x;
      low[k] = load_word_if(tokens.address(i), i < end);
    }
    uint32_t equal = 0;
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k) equal |= uint32_t{low[k] == last} << k;
    for (; equal != 0; equal &= equal - 1) {
      const int64_t i = at + int64_t{__ffs(static_cast<int>(equal)) - 1} * blockDim.x;
      const uint64_t found = i < end ? ngram_at(p, tokens, length, i) : 0;
      best = found > best ? found : best;
    }
  }
  return best;
}

__device__ uint64_t warp_max(uint64_t x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, x, d);
    x = other > x ? other : x;
  }
  return x;
}

/// What the blocks of a row found, brought together by the one that arrives last: called by the
/// first warp of each block with that block's best; true in that of the last one, with the row's.
/// No block waits for another, since CUDA does not promise that the other has started.
__device__ bool meet(const DeviceNgram& p, int64_t row, uint64_t& best) {
  if (p.blocks_per_row == 1) return true;
  bool is_last = false;
  if (threadIdx.x == 0) {
    NgramMeeting& meeting = p.meetings[row];
    if (best != 0) atomicMax(&meeting.best, best);
    is_last = add_to_counter(&meeting.num_blocks, 1) + 1 == p.blocks_per_row;
    if (is_last) {  // as the next launch is to find it
      best = atomicExch(&meeting.best, 0ull);
      meeting.num_blocks = 0;
    }
  }
  best = __shfl_sync(kAllLanes, best, 0);
  return __any_sync(kAllLanes, is_last) != 0;
}

// The last n tokens of each row, looked for among those before.
//
//   blocks_per_row blocks    a row; the last to arrive writes the drafts
//     block                  a share of the row's tokens, one after the other
//       thread t             the tokens t, t + blockDim.x, ... of the share, kLoadsAtOnce at a time
//
// Grid num_rows * blocks_per_row, block blockDim.x threads, whole warps.
__global__ void __launch_bounds__(kNgramThreads)
    propose_kernel(const __grid_constant__ DeviceNgram p) {
  __shared__ uint64_t warp_best[kNgramThreads / 32];  // [warps]: keys of n-grams, 0: none
  const int64_t row = blockIdx.x / p.blocks_per_row;
  const int64_t block = blockIdx.x % p.blocks_per_row;
  const int64_t held = p.lengths[row], num_active = p.num_active.read();
  const int64_t clamped = held < 0 ? 0 : held < p.max_tokens ? held : p.max_tokens;
  const int64_t length = row < num_active ? clamped : 0;
  const cpu::IndexArray tokens = p.tokens.row(row);
  const int64_t before_last = length - 1;
  const int64_t share = static_cast<uint32_t>(length + p.blocks_per_row - 1) /
                        static_cast<uint32_t>(p.blocks_per_row);
  const int64_t begin = block * share;
  const int64_t end = begin + share < before_last ? begin + share : before_last;
  uint64_t best = begin < end ? search(p, tokens, length, begin, end) : 0;

  best = warp_max(best);
  if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = warp_max(threadIdx.x < blockDim.x / 32 ? warp_best[threadIdx.x] : 0);
  if (!meet(p, row, best)) return;

  const auto stored = static_cast<uint32_t>(best);
  const int64_t at = static_cast<uint32_t>(p.takes_first() ? ~stored : stored);
  const int64_t count = best == 0 ? 0 : p.num_drafts_after(at, length);
  const cpu::MutableIndexArray drafts = p.draft_tokens.row(row);
  for (int64_t j = threadIdx.x; j < p.max_drafts; j += 32) {
    drafts.set(j, j < count ? tokens[at + 1 + j] : kNoToken);
  }
  if (threadIdx.x == 0) p.num_drafts.set(row, count);
}

}  // namespace

void propose_ngram_drafts(const NgramParams& params, const ExecContext& ctx) {
  constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();
  if (params.max_tokens > kMaxTokens) {
    throw_error(ErrorCode::kUnsupported, "tokens.size(1) is ", params.max_tokens, ", at most ",
                kMaxTokens, " on ", ctx.device);
  }
  const NgramLaunch launch =
      select_ngram_launch(params.num_rows, params.max_tokens,
                          kNgramMeetings.fits(ctx.exchange.size()), ctx.info.num_sms);
  log_choice("propose_ngram_drafts", launch);
  const auto blocks = static_cast<unsigned>(params.num_rows * launch.blocks_per_row);
  propose_kernel<<<blocks, launch.threads, 0, ctx.stream>>>(
      DeviceNgram(params, launch.blocks_per_row, ctx.exchange));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
