#pragma once

#include <cstdint>

namespace heddle {

/// A vector of any stride.
template <class T>
struct ParamColumn {
  const T* data = nullptr;
  int64_t stride = 0;  // in elements

  [[nodiscard, gnu::always_inline]] constexpr T operator[](int64_t i) const {
    return data[i * stride];
  }
};

/// The rows of a call, as raw arrays.
struct LogitRows {
  const float* logits;  // [num_rows, vocab_size]
  int64_t row_stride;   // in elements
  int64_t num_rows, vocab_size;
};

/// The arguments of sample and greedy.
struct SampleParams {
  LogitRows rows;
  void* token_ids;  // [num_rows] i32 or i64
  int64_t token_stride;
  bool is_int64;
  float* logprobs;  // [num_rows] or nullptr
  int64_t logprob_stride;
  // [num_rows]; without a temperature all rows are greedy
  ParamColumn<float> temperature{};
  ParamColumn<int32_t> top_k{};
  ParamColumn<float> top_p{}, min_p{};
  ParamColumn<int64_t> seed{}, step{};
};

/// Those of token_logprobs.
struct TokenLogprobsParams {
  LogitRows rows;
  float* logprobs;  // [num_rows]
  int64_t logprob_stride;
  const void* token_ids;  // [num_rows] i32 or i64
  int64_t token_stride;
  bool is_int64;
  int64_t k = 0;               // 0: without the most likely ones
  int32_t* top_ids = nullptr;  // [num_rows, k], and so top_logprobs
  int64_t top_ids_stride = 0;
  float* top_logprobs = nullptr;
  int64_t top_logprobs_stride = 0;
};

}  // namespace heddle
