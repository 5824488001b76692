#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/adapters/kinds/adapter_method.h"
#include "model/config/block_shape.h"

namespace heddle::model {

/// A module that an adapter may change: the embedding, a linear layer of a block, the head, or the
/// score head of a classifier.
struct AdapterPlace {
  enum class Kind : uint8_t { kEmbedding, kLayer, kHead, kScore };
  Kind kind = Kind::kLayer;
  int64_t layer = 0;
  const LinearModule* module = nullptr;  // in kLinearModules; of layers alone

  auto operator<=>(const AdapterPlace&) const = default;
  /// As in the base model: "model.layers.3.self_attn.q_proj".
  [[nodiscard]] std::string name() const;
};

/// What a tensor of an adapter is to its place.
enum class AdapterPart : uint8_t {
  kA,
  kB,
  kMagnitude,
  kBias,       // of B
  kLayerBias,  // in place of the layer's own
  kWeight,     // in place of the base model's
  kOriginal,   // what the base model has where the adapter has a weight of its own
  kTokenRows,
  kWeightBias,    // of a kWeight
  kOriginalBias,  // of a kOriginal
  kVelora,        // of VeLoRA: what its training projects on
  kLatent,        // of LoRA-XS: between A and B
  kW1A,           // of LoHa
  kW1B,
  kW2A,
  kW2B,
  kLambdaB,  // of VeRA
  kLambdaD,
  kLambda,  // of RandLoRA
  kGamma,
  kFactor,       // of IA3
  kTransposedA,  // of MLX-LM
  kTransposedB,
  kSharedA,  // of VeRA and RandLoRA: of no place
  kSharedB
};
inline constexpr size_t kNumAdapterParts = 25;

/// What the name of an adapter's tensor says.
struct PeftTensorName {
  AdapterPlace place;
  AdapterPart part;
  std::string adapter{};  // its name where that was left in, as in "lora_A.default.weight"
  /// The prefix of the decoder in the model that the adapter was trained on: "model.", or in one
  /// that takes more than text one of kNestedDecoders.
  std::string_view decoder = "model.";
};

/// Parses "base_model.model.<module>.<part>"; nothing where it is another name, or no part that an
/// adapter of the method has. It may contain the adapter's name and what wrappers of training add
/// ("module.", "_orig_mod."). "base_model.model." may be missing, and "model." before "layers" and
/// "embed_tokens", which an adapter of an AutoModel lacks.
[[nodiscard]] std::optional<PeftTensorName> parse_peft_name(
    std::string_view text, AdapterMethod method = AdapterMethod::kLora);
/// The part of a tensor that belongs to no place: "base_model.vera_A".
[[nodiscard]] std::optional<AdapterPart> parse_shared_name(std::string_view text,
                                                           AdapterMethod method);
/// Whether the tensor belongs to one of kOtherHalves.
[[nodiscard]] bool is_of_other_half(std::string_view text);
/// The name as PEFT writes it now.
[[nodiscard]] std::string peft_name(const AdapterPlace& place, AdapterPart part);
[[nodiscard]] std::string shared_name(AdapterPart part, AdapterMethod method);

}  // namespace heddle::model
