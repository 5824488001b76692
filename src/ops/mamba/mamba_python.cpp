#include "heddle/ops/mamba.h"

#include "bindings/call.h"
#include "bindings/count.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void selective_copy(nb::handle current_states, nb::handle intermediate_states,
                    nb::handle prefill_status, nb::handle state_idx, nb::handle accepted_counts,
                    int64_t num_layers, nb::handle num_active) {
  Call call;
  const std::vector<TensorView> current = call.outs("current_states", current_states);
  const std::vector<ConstTensorView> intermediate =
      call.ins("intermediate_states", intermediate_states);
  HEDDLE_CHECK(current.size() == intermediate.size(), "intermediate_states has ",
               intermediate.size(), " entries, expected ", current.size(), " as current_states");
  std::vector<MambaState> states;
  for (size_t s = 0; s < current.size(); ++s) states.push_back({current[s], intermediate[s]});
  const ConstTensorView prefill = call.in("prefill_status", prefill_status);
  const ConstTensorView slots = call.in("state_idx", state_idx);
  const ConstTensorView accepted = call.in("accepted_counts", accepted_counts);
  const Count active = count_of(call, "num_active", num_active);
  call.run([&](const ExecContext& ctx) {
    mamba_state_selective_copy(ctx, states, prefill, slots, accepted, num_layers, active);
  });
}

}  // namespace

void bind_mamba(nb::module_& m) {
  m.def("mamba_state_selective_copy", &selective_copy, "current_states"_a, "intermediate_states"_a,
        "prefill_status"_a, "state_idx"_a, "accepted_counts"_a, "num_layers"_a, nb::kw_only(),
        "num_active"_a = nb::none());
}

}  // namespace heddle::python
