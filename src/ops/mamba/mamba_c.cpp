#include "heddle/ops/mamba.h"

#include <string>

#include "capi/convert.h"
#include "capi/count.h"
#include "capi/guard.h"

using heddle::capi::count_or_absent;
using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::out;

namespace {

/// "name[s]"
std::string element(const char* name, int32_t s) {
  return std::string(name).append("[").append(std::to_string(s)).append("]");
}

}  // namespace

heddle_status heddle_mamba_state_selective_copy(heddle_context* context,
                                                DLTensor* const* current_states,
                                                const DLTensor* const* intermediate_states,
                                                int32_t num_states, const DLTensor* prefill_status,
                                                const DLTensor* state_idx,
                                                const DLTensor* accepted_counts, int64_t num_layers,
                                                const heddle_count* num_active) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    HEDDLE_CHECK(num_states >= 0 && num_states <= heddle::kMaxMambaStates, "num_states is ",
                 num_states, ", expected 0 to ", heddle::kMaxMambaStates);
    HEDDLE_CHECK(num_states == 0 || current_states != nullptr, "current_states is NULL");
    HEDDLE_CHECK(num_states == 0 || intermediate_states != nullptr, "intermediate_states is NULL");
    heddle::MambaState states[heddle::kMaxMambaStates];
    for (int32_t s = 0; s < num_states; ++s) {
      states[s] = {out(element("current_states", s).c_str(), current_states[s]),
                   in(element("intermediate_states", s).c_str(), intermediate_states[s])};
    }
    heddle::mamba_state_selective_copy(
        ctx, {states, static_cast<size_t>(num_states)}, in("prefill_status", prefill_status),
        in("state_idx", state_idx), in("accepted_counts", accepted_counts), num_layers,
        count_or_absent("num_active", num_active));
  });
}
