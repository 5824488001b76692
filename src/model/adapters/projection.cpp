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

}  // namespace heddle::model
