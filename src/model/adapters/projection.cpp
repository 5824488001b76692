#include "model/adapters/projection.h"

namespace heddle::model {

const char* name(Projection projection) {
  switch (projection) {
    case Projection::kQ: return "q_proj";
    case Projection::kK: return "k_proj";
    case Projection::kV: return "v_proj";
    case Projection::kO: return "o_proj";
    case Projection::kGate: return "gate_proj";
    case Projection::kUp: return "up_proj";
    case Projection::kDown: return "down_proj";
  }
  return "?";
}

bool ModelDims::has(const LinearModule& module) const {
  if (module.first <= Projection::kV) return (module.num_projections == 3) == fused_qkv;
  const bool is_gate_up = module.first == Projection::kGate || module.first == Projection::kUp;
  return !is_gate_up || (module.num_projections == 2) == fused_gate_up;
}

ProjectionDims ModelDims::of(const LinearModule& module) const {
  ProjectionDims dims = (*this)[module.first];
  for (int i = 1; i < module.num_projections; ++i) {
    dims.out += projections[static_cast<int>(module.first) + i].out;
  }
  return dims;
}

}  // namespace heddle::model
