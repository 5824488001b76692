#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::ref {

/// Which copies are made: current[l, slot] <- intermediate[l, slot, token] for every layer. Bounds
/// as the contract says.
struct SlotCopy {
  int64_t slot, token;
};
inline std::vector<SlotCopy> mamba_state_selective_copy(const std::vector<int64_t>& prefill_status,
                                                        const std::vector<int64_t>& state_idx,
                                                        const std::vector<int64_t>& accepted_counts,
                                                        int64_t num_active, int64_t num_slots,
                                                        int64_t max_accepted) {
  std::vector<SlotCopy> copies;
  for (size_t i = 0; i < size_t(num_active); ++i) {
    if (prefill_status[i] == 1) continue;
    if (state_idx[i] < 0 || state_idx[i] >= num_slots) continue;
    int64_t token = accepted_counts[i];
    if (token < 0) token = 0;
    if (token > max_accepted) token = max_accepted;
    copies.push_back({state_idx[i], token});
  }
  return copies;
}

}  // namespace heddle::ref
