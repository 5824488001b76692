#pragma once

#include <map>

#include "model/adapters/kinds/module_tensors.h"

namespace heddle::model {

// What each method makes of the tensors of one module: A and B as the engine runs them. Formulas
// and PEFT's classes are in docs/adapter_kinds.md.

/// LoRA and its variants: DoRA, lora_bias, biases of layers; LoRA-XS, whose matrix R between A and
/// B becomes a part of A: scale * B (R A).
[[nodiscard]] LowRank read_lora(const ModuleTensors& module);
/// scale * (W1a W1b) o (W2a W2b), o element by element: of rank r * r.
[[nodiscard]] LowRank read_loha(const ModuleTensors& module);
/// The matrices that the modules of VeRA share: of the file, or drawn as torch draws them where the
/// configuration says that the file has none.
[[nodiscard]] VeraProjections vera_projections(const AdapterSource& source);
/// (diag(lambda_b) B) (diag(lambda_d) A), with B and A the first rows and columns of these.
[[nodiscard]] LowRank read_vera(const ModuleTensors& module);
/// scale * the sum over bases b of B_b diag(lambda_b) A diag(gamma_b), of rank r * num_bases.
[[nodiscard]] LowRank read_rand_lora(const ModuleTensors& module);
/// MLX-LM's LoRA and DoRA, A and B transposed.
[[nodiscard]] LowRank read_mlx(const ModuleTensors& module);
/// IA3: outputs times a factor. What multiplies the inputs of down_proj, which are up_proj's
/// outputs times the gate, comes to up_proj; of other layers' inputs it is refused.
[[nodiscard]] std::map<AdapterPlace, LowRank> read_ia3(
    const AdapterSource& source, const std::map<AdapterPlace, PlaceTensors>& places);

/// A pair of halves of one dtype; what else it has is absent.
[[nodiscard]] LowRank pair_of(const StoredValues& a, const StoredValues& b, float scale);

}  // namespace heddle::model
