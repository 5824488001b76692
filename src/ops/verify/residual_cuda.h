#pragma once

#include "cuda/warp.h"

#include "core/math.h"
#include "ops/verify/residual.h"

namespace heddle::cuda::verify {

/// Threads that work on one request together, and chunks that they sum at once, 16 lanes each.
inline constexpr int kWalkThreads = 512;
inline constexpr int kWalkChunks = kWalkThreads / 16;

/// What one request's block shares: Residual, ChunkSums and the weights of a chunk that a draw
/// walks through.
struct SharedResidual {
  // [num_rejected]: the drafts that were rejected.
  double masses[kMaxTried];
  const float* q[kMaxTried];
  int64_t tokens[kMaxTried];
  double sums[ChunkSums::kMaxChunks];  // [num_chunks]: of the weights of each chunk
  double weights[ChunkSums::kUnit];    // [up to kUnit]: of the chunk that a draw falls in
  double total;                        // of all weights
  double before;                       // of a draw: sum of the chunks before the one it falls in
  int64_t chunk;                       // of a draw
  int64_t drawn;
  bool is_behind;  // whether the draw's token has been passed
};

[[nodiscard]] __device__ inline double device_probability(float x) {
  return x > 0.0f ? double{x} : 0.0;
}

/// What is left of the target's row after rejections (ops/verify/residual.h), with all of its sums
/// in the same order as on the CPU. All threads of a block call every function, with the same
/// arguments, and get the same results.
class DeviceResidual {
 public:
  __device__ DeviceResidual(SharedResidual& shared, const float* p, int64_t vocab_size,
                            bool one_hot)
      : s_(shared),
        p_(p),
        vocab_size_(vocab_size),
        chunk_size_(chunk_size_of(vocab_size)),
        num_chunks_(ceil_div(vocab_size, chunk_size_)),
        one_hot_(one_hot) {}

  [[nodiscard]] __device__ int num_rejected() const { return num_rejected_; }
  __device__ void forget_rejected() { num_rejected_ = 0; }

  [[nodiscard]] __device__ double weight_of(int64_t token) const {
    double w = device_probability(p_[token]);
    for (int k = 0; k < num_rejected_; ++k) {
      if (one_hot_) {
        if (s_.tokens[k] == token) return 0.0;
      } else {
        const double rest = w - s_.masses[k] * device_probability(s_.q[k][token]);
        w = rest > 0.0 ? rest : 0.0;
      }
    }
    return w;
  }
  /// Adds a rejected draft; returns the mass of what is left.
  [[nodiscard]] __device__ double reject(int64_t token, const float* q, double mass) {
    __syncthreads();  // all threads are done with what it holds
    if (threadIdx.x == 0) {
      s_.tokens[num_rejected_] = token;
      s_.q[num_rejected_] = q;
      s_.masses[num_rejected_] = mass;
    }
    const bool is_first = num_rejected_++ == 0;
    __syncthreads();
    if (is_first || !one_hot_) return sum(0, num_chunks_);
    const int64_t chunk = token / chunk_size_;  // the only one that has changed
    return sum(chunk, chunk + 1);
  }
  /// Sums all weights; returns the total.
  [[nodiscard]] __device__ double sum() { return sum(0, num_chunks_); }

  /// The first token whose running sum exceeds u times the total, which is positive.
  [[nodiscard]] __device__ int64_t draw(double u) {
    const double threshold = u * s_.total;
    if (threadIdx.x == 0) find_chunk(threshold);
    __syncthreads();
    const int64_t begin = s_.chunk * chunk_size_;
    const int64_t chunk_end = begin + chunk_size_;
    const int64_t end = chunk_end < vocab_size_ ? chunk_end : vocab_size_;
    double running = s_.before;  // of thread 0
    for (int64_t first = begin; first < end && !s_.is_behind; first += ChunkSums::kUnit) {
      const int64_t left = end - first;
      const int count = static_cast<int>(left < ChunkSums::kUnit ? left : ChunkSums::kUnit);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += kWalkThreads) {
        s_.weights[i] = weight_of(first + i);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int i = 0; i < count && !(running > threshold); ++i) {
          const double w = s_.weights[i];
          if (!(w > 0.0)) continue;
          s_.drawn = first + i;
          running += w;
        }
        s_.is_behind = running > threshold;
      }
      __syncthreads();
    }
    return s_.drawn;
  }

 private:
  /// Sums the chunks [first, end) and adds up all.
  [[nodiscard]] __device__ double sum(int64_t first, int64_t end) {
    const int64_t lane = threadIdx.x % 16;
    // Whole warps stay in the loop: the shuffles need all lanes.
    for (int64_t base = first; base < end; base += kWalkChunks) {
      const int64_t chunk = base + threadIdx.x / 16;
      double of_lane = 0.0;
      if (chunk < end) {
        const int64_t from = chunk * chunk_size_, after = from + chunk_size_;
        const int64_t to = after < vocab_size_ ? after : vocab_size_;
        of_lane = sum_lane(from + lane, to);
      }
#pragma unroll
      for (int n = 8; n > 0; n /= 2) of_lane += __shfl_down_sync(kAllLanes, of_lane, n, 16);
      if (lane == 0 && chunk < end) s_.sums[chunk] = of_lane;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double total = 0.0;
#pragma unroll 8
      for (int64_t c = 0; c < num_chunks_; ++c) total += s_.sums[c];
      s_.total = total;
    }
    __syncthreads();
    return s_.total;
  }

  /// Every 16th weight of [first, end), ascending. Chains have no more than one rejected draft:
  /// many loads are then in flight.
  [[nodiscard]] __device__ double sum_lane(int64_t first, int64_t end) const {
    double sum = 0.0;
    if (num_rejected_ == 0) {
#pragma unroll 16
      for (int64_t i = first; i < end; i += 16) sum += device_probability(p_[i]);
    } else if (num_rejected_ == 1 && !one_hot_) {
      const double mass = s_.masses[0];
      const float* const q = s_.q[0];
#pragma unroll 8
      for (int64_t i = first; i < end; i += 16) {
        const double rest = device_probability(p_[i]) - mass * device_probability(q[i]);
        sum += rest > 0.0 ? rest : 0.0;
      }
    } else {
      for (int64_t i = first; i < end; i += 16) sum += weight_of(i);
    }
    return sum;
  }

  /// Of thread 0: the chunk in which the running sum passes the threshold.
  __device__ void find_chunk(double threshold) {
    int64_t chunk = 0;
    double before = 0.0, running = 0.0;
    for (int64_t c = 0; c < num_chunks_ && !(running > threshold); ++c) {
      const double of_chunk = s_.sums[c];
      if (!(of_chunk > 0.0)) continue;
      chunk = c;
      before = running;
      running += of_chunk;
    }
    s_.chunk = chunk;
    s_.before = before;
    s_.drawn = 0;
    s_.is_behind = false;
  }

  SharedResidual& s_;
  const float* p_;
  int64_t vocab_size_, chunk_size_, num_chunks_;
  bool one_hot_;
  int num_rejected_ = 0;
};

}  // namespace heddle::cuda::verify
