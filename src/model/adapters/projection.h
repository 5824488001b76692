#pragma once

#include <cstdint>
#include <ostream>

namespace heddle::model {

/// The seven linear layers of a Llama block, in the order in which a block runs them.
enum class Projection : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kNumProjections = 7;

/// "q_proj", ..., "down_proj": the module's name as Hugging Face and PEFT write it.
[[nodiscard]] const char* name(Projection projection);
inline std::ostream& operator<<(std::ostream& os, Projection projection) {
  return os << name(projection);
}

/// Features of a linear layer: its weight is [out, in].
struct ProjectionDims {
  int64_t in = 0, out = 0;
};

/// What an adapter must fit: `projections` is indexed by Projection, the same in every layer.
struct ModelDims {
  int64_t num_layers = 0;
  ProjectionDims projections[kNumProjections] = {};

  [[nodiscard]] const ProjectionDims& operator[](Projection p) const {
    return projections[static_cast<int>(p)];
  }
  [[nodiscard]] ProjectionDims& operator[](Projection p) {
    return projections[static_cast<int>(p)];
  }
};

}  // namespace heddle::model
