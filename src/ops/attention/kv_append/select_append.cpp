#include "ops/attention/kv_append/select_append.h"

#include <algorithm>
#include <ostream>

#include "core/math.h"
#include "ops/attention/kv_append/kv_append_cuda_params.h"
#include "ops/attention/paged/aligned_rows.h"

namespace heddle::cuda::attention {
namespace {

/// Threads that a multiprocessor runs at the same time. A call of fewer vectors than that gives a
/// thread one of them, since latency is all that counts.
constexpr int64_t kThreadsPerSm = 2048;

int units_of_head(const AppendCall& call, bool moves_vectors) {
  constexpr auto kBytes = static_cast<int>(kVectorBytes);
  return moves_vectors ? call.head_dim * call.element_bytes / kBytes : call.head_dim;
}

/// A warp quantises one head of a key or value at a time; where tokens are many, up to four.
int64_t select_warps_of_codes(const AppendCall& call, int num_sms) {
  const int64_t heads = 2 * int64_t{call.num_kv_heads};
  const bool is_small = call.num_tokens * heads * 32 <= num_sms * kThreadsPerSm;
  return is_small ? heads : ceil_div(heads, kAppendItems);
}

/// As the copy alone would have it, of rope_kv_append too, whose limits are the same.
int64_t select_warps_per_token(const AppendCall& call, int num_sms) {
  const int64_t units = 2 * int64_t{call.num_kv_heads} * units_of_head(call, call.is_aligned);
  const bool is_small = call.num_tokens * units <= num_sms * kThreadsPerSm;
  const int64_t of_thread = call.is_aligned && is_small ? 1 : kAppendItems;
  return ceil_div(units, 32 * of_thread);
}

}  // namespace

AppendChoice select_append_kernel(const AppendCall& call, const DeviceInfo& info) {
  AppendChoice c;
  const bool rotates = call.num_pairs > 0;
  c.stores_codes = call.stores_codes;
  c.moves_vectors = (call.is_aligned || call.stores_codes) && call.is_q_aligned &&
                    call.num_pairs * call.element_bytes % kVectorBytes == 0;
  c.head_units = units_of_head(call, c.moves_vectors && !call.stores_codes);
  c.warps_per_token = call.stores_codes ? select_warps_of_codes(call, info.num_sms)
                                        : select_warps_per_token(call, info.num_sms);
  if (!rotates) return c;
  const int pairs_per_thread =
      c.moves_vectors ? static_cast<int>(kVectorBytes) / call.element_bytes : 1;
  c.threads_per_row = call.num_pairs / pairs_per_thread;
  const int key_rows = call.stores_codes ? 0 : call.num_kv_heads;
  const int rows = (call.num_q_heads + key_rows) * c.threads_per_row;
  const int wanted = std::max(
      rows, call.stores_codes ? 2 * call.num_kv_heads * 32 : call.num_kv_heads * c.head_units);
  const int most = call.stores_codes ? kMaxRopeCodesThreads : kMaxRopeAppendThreads;
  c.threads = std::clamp(round_up(wanted, 32), 64, most);
  c.is_speculative = call.num_tokens * c.threads <= info.num_sms * kThreadsPerSm;
  // Of many tokens a thread has the loads of two rows in flight.
  if (!c.is_speculative && !call.stores_codes) {
    c.threads = std::clamp(round_up(ceil_div(wanted, 2), 32), 64, most);
  }
  return c;
}

std::ostream& operator<<(std::ostream& os, const AppendCall& call) {
  os << (call.num_pairs > 0 ? "rope_kv_append" : "kv_append") << ": " << call.num_tokens
     << " tokens, " << call.num_kv_heads << " heads of " << call.head_dim << " elements of "
     << call.element_bytes << " bytes";
  if (!call.is_aligned) os << ", not aligned";
  if (call.stores_codes) os << ", codes";
  if (call.num_pairs > 0)
    os << ", " << call.num_pairs << " pairs, " << call.num_q_heads << " q heads";
  if (!call.is_q_aligned) os << ", q not aligned";
  return os;
}

std::ostream& operator<<(std::ostream& os, const AppendChoice& choice) {
  os << (choice.stores_codes    ? "codes"
         : choice.moves_vectors ? "vectors"
                                : "elements")
     << ": " << choice.head_units << " a head, " << choice.warps_per_token << " warps a token";
  if (choice.threads > 0) {
    os << ", blocks of " << choice.threads << " threads, " << choice.threads_per_row << " a row";
    if (choice.is_speculative) os << ", speculative";
  }
  return os;
}

}  // namespace heddle::cuda::attention
