#pragma once

#include "cuda/memory_cuda.h"
#include "cuda/philox_cuda.h"

#include "ops/sampling/draw/weight.h"
#include "ops/sampling/sample/row_state_cuda.h"
#include "ops/sampling/sample/sample_params.h"

namespace heddle::cuda::sampling {

using heddle::sampling::kInfinity;

/// How a row draws; temperature > 0.
struct RowDraw {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  double u;
  float scale;          // of the weights
  double min_p_offset;  // for min_p in (0, 1]

  [[nodiscard]] __host__ __device__ bool has_top_k(int64_t vocab_size) const {
    return top_k > 0 && top_k < vocab_size;
  }
};

/// The options of a row; greedy without a positive temperature.
[[nodiscard]] __host__ __device__ inline RowDraw draw_of(const SampleParams& p, int64_t row) {
  if (p.temperature.data == nullptr) return {};
  RowDraw draw{p.temperature[row], p.top_k[row], p.top_p[row], p.min_p[row], 0.0, 0.0f, 0.0};
  const int64_t seed = p.seed[row], step = p.step[row];
  if (!(draw.temperature > 0.0f)) return {};
  constexpr uint32_t kSample = 0;  // cpu::Draw
  draw.u = uniform_draw(seed, step, kSample, 0);
  draw.scale = heddle::sampling::scale_of(draw.temperature);
  if (draw.min_p > 0.0f && !(draw.min_p > 1.0f)) {
    draw.min_p_offset = heddle::sampling::min_p_offset(draw.temperature, draw.min_p);
  }
  return draw;
}

/// Has them brought into the L2 cache, where there are options.
__device__ inline void bring_options_near(const SampleParams& p, int64_t row) {
  const auto bring = [&](const auto& column) { prefetch(column.data + row * column.stride); };
  bring(p.temperature);
  bring(p.top_k);
  bring(p.top_p);
  bring(p.min_p);
  bring(p.seed);
  bring(p.step);
}

/// What the leader of a row wants from all blocks.
struct RowNeeds {
  bool lowest = false;              // the lowest token of the largest logit
  bool list = false;                // the tokens that are not below the bound
  int num_groups = 0;               // so many groups have such tokens, about
  bool has_offset = false;          // the bound may be that of min_p, where this is higher
  bool total = false, one = false;  // sums of units: with `scale`, and at temperature 1
  float scale = 0.0f;
  double offset = 0.0;  // of min_p

  /// Only the lowest token of the largest logit.
  [[nodiscard]] __host__ __device__ bool is_greedy() const { return lowest && !one; }
};

/// A list with tokens of so many groups has as many tokens, if they can all be listed.
[[nodiscard]] __host__ __device__ inline int groups_of(int64_t num_tokens) {
  constexpr int kLeast = 32, kMost = kGroups * 15 / 16;
  return num_tokens < kLeast ? kLeast : num_tokens < kMost ? static_cast<int>(num_tokens) : kMost;
}

[[nodiscard]] __host__ __device__ inline RowNeeds needs_of(const RowDraw& draw, int64_t vocab_size,
                                                           bool wants_logprob) {
  if (!(draw.temperature > 0.0f)) return {.lowest = true, .one = wants_logprob};
  const bool has_top_p = draw.top_p<1.0f, has_min_p = draw.min_p> 0.0f;
  const bool has_top_k = draw.has_top_k(vocab_size);
  const bool total = !has_top_k && (has_top_p || !has_min_p);
  // Some 700 tokens where it is not known how many the filters need. Those below the bound of min_p
  // matter only for the sum of which top_p is a share.
  const int64_t num_tokens = has_top_k ? draw.top_k : kMaxList;
  return {.list = has_top_k || has_top_p || has_min_p,
          .num_groups = groups_of(num_tokens),
          .has_offset = has_min_p && !(draw.min_p > 1.0f) && !(has_top_k && has_top_p),
          .total = total,
          .one = wants_logprob && !(total && draw.temperature == 1.0f),
          .scale = draw.scale,
          .offset = draw.min_p_offset};
}

/// The least f32 that is not below `bound`.
[[nodiscard]] __host__ __device__ inline float least_from(double bound) {
  const auto near = static_cast<float>(bound);
  return double{near} < bound ? nextafterf(near, kInfinity) : near;
}

}  // namespace heddle::cuda::sampling
