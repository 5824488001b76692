#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"

namespace heddle::cuda::attention {

/// A call of kv_init, kv_append or rope_kv_append on a GPU, described: all that decides which
/// kernel runs it, and how.
struct AppendCall {
  int64_t num_tokens = 0;
  int num_kv_heads = 1, head_dim = 0;
  int element_bytes = 2;      // of k and v
  bool is_aligned = true;     // cache, k and v: one dtype, rows of whole vectors of 16 bytes
  bool stores_codes = false;  // the cache is f8e4m3
  int num_pairs = 0;          // that rotate; 0: not rope_kv_append
  int num_q_heads = 0;        // 0: no q
  bool is_q_aligned = true;   // rows of q begin at multiples of 16 bytes
};

struct AppendChoice {
  /// 16 bytes at a time, else single elements; where codes are stored, of q alone.
  bool moves_vectors = true;
  bool stores_codes = false;  // a warp takes a head of a key or value at a time
  int head_units = 0;         // vectors or elements of a head
  int64_t warps_per_token = 0;
  /// Of rope_kv_append: a block has a token, and this many threads the pairs of a head.
  int threads = 0, threads_per_row = 0;
  /// Blocks so few that they are in place while the kernel in front still runs.
  bool is_speculative = false;

  friend bool operator==(const AppendChoice&, const AppendChoice&) = default;
};

[[nodiscard]] AppendChoice select_append_kernel(const AppendCall& call, const DeviceInfo& info);

std::ostream& operator<<(std::ostream& os, const AppendCall& call);
std::ostream& operator<<(std::ostream& os, const AppendChoice& choice);

}  // namespace heddle::cuda::attention
