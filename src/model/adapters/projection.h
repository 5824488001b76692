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

/// A linear layer as checkpoints have it: a projection, or several neighbours whose rows lie in one
/// weight, as Phi-3 has them.
struct LinearModule {
  const char* name;  // behind "model.layers.<layer>."
  Projection first;
  int num_projections;
};

/// In the order in which a block runs them.
inline constexpr LinearModule kLinearModules[] = {
    {"self_attn.q_proj", Projection::kQ, 1}, {"self_attn.k_proj", Projection::kK, 1},
    {"self_attn.v_proj", Projection::kV, 1}, {"self_attn.qkv_proj", Projection::kQ, 3},
    {"self_attn.o_proj", Projection::kO, 1}, {"mlp.gate_proj", Projection::kGate, 1},
    {"mlp.up_proj", Projection::kUp, 1},     {"mlp.gate_up_proj", Projection::kGate, 2},
    {"mlp.down_proj", Projection::kDown, 1},
};

/// Features of a linear layer: its weight is [out, in].
struct ProjectionDims {
  int64_t in = 0, out = 0;
};

/// What an adapter must fit: `projections` is indexed by Projection, the same in every layer.
struct ModelDims {
  int64_t num_layers = 0;
  ProjectionDims projections[kNumProjections] = {};
  bool fused_qkv = false, fused_gate_up = false;  // as the checkpoint has them, and so adapters
  int64_t hidden_size = 0, vocab_size = 0;

  [[nodiscard]] bool has(const LinearModule& module) const;
  [[nodiscard]] ProjectionDims of(const LinearModule& module) const;

  [[nodiscard]] const ProjectionDims& operator[](Projection p) const {
    return projections[static_cast<int>(p)];
  }
  [[nodiscard]] ProjectionDims& operator[](Projection p) {
    return projections[static_cast<int>(p)];
  }
};

}  // namespace heddle::model
