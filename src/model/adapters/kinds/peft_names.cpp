#include "model/adapters/kinds/peft_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "model/config/tensor_names.h"

namespace heddle::model {
namespace {

using Kind = AdapterPlace::Kind;

constexpr std::string_view kBase = "base_model.";
constexpr std::string_view kPrefix = "base_model.model.", kModel = "model.";
constexpr std::string_view kEmbedding = "model.embed_tokens", kHead = "lm_head", kScore = "score";
constexpr std::string_view kLayers = "model.layers.";
/// Segments that torch.compile, FSDP and activation checkpointing insert anywhere in a name; DDP
/// and DeepSpeed put one first.
constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module"};
constexpr std::string_view kDataParallel = "module.";
/// Segments that the adapter's name may follow.
constexpr std::array<std::string_view, 19> kNamed = {"lora_A",
                                                     "lora_B",
                                                     "lora_embedding_A",
                                                     "lora_embedding_B",
                                                     "modules_to_save",
                                                     "lora_velora_embed",
                                                     "lora_magnitude_vector",
                                                     "trainable_tokens_delta",
                                                     "hada_w1_a",
                                                     "hada_w1_b",
                                                     "hada_w2_a",
                                                     "hada_w2_b",
                                                     "vera_lambda_b",
                                                     "vera_lambda_d",
                                                     "randlora_lambda",
                                                     "randlora_gamma",
                                                     "randlora_A",
                                                     "randlora_B",
                                                     "ia3_l"};

/// What follows the module in the name of a part; PEFT now writes the first of several.
struct Spelling {
  AdapterPart part;
  std::string_view text;
};
constexpr Spelling kOfLora[] = {
    {AdapterPart::kA, ".lora_A.weight"},
    {AdapterPart::kB, ".lora_B.weight"},
    {AdapterPart::kBias, ".lora_B.bias"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector.weight"},
    {AdapterPart::kLayerBias, ".base_layer.bias"},
    {AdapterPart::kVelora, ".lora_velora_embed"},
    {AdapterPart::kLatent, ".lora_latent_mapping.weight"},
};
constexpr Spelling kOfEmbedding[] = {
    {AdapterPart::kA, ".lora_embedding_A"},
    {AdapterPart::kB, ".lora_embedding_B"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector.weight"},
};
constexpr Spelling kOfLoha[] = {
    {AdapterPart::kW1A, ".hada_w1_a"},
    {AdapterPart::kW1B, ".hada_w1_b"},
    {AdapterPart::kW2A, ".hada_w2_a"},
    {AdapterPart::kW2B, ".hada_w2_b"},
};
constexpr Spelling kOfVera[] = {
    {AdapterPart::kLambdaB, ".vera_lambda_b"},
    {AdapterPart::kLambdaD, ".vera_lambda_d"},
};
constexpr Spelling kOfRandLora[] = {
    {AdapterPart::kLambda, ".randlora_lambda"},
    {AdapterPart::kGamma, ".randlora_gamma"},
    {AdapterPart::kSharedA, ".randlora_A"},  // with each module, too
    {AdapterPart::kSharedB, ".randlora_B"},
};
constexpr Spelling kOfIa3[] = {{AdapterPart::kFactor, ".ia3_l"}};
constexpr Spelling kOfMlx[] = {
    {AdapterPart::kTransposedA, ".lora_a"},
    {AdapterPart::kTransposedB, ".lora_b"},
    {AdapterPart::kMagnitude, ".m"},
};
/// What a method has for a linear layer.
std::span<const Spelling> of_linear(AdapterMethod method) {
  switch (method) {
    case AdapterMethod::kLora: return kOfLora;
    case AdapterMethod::kLoha: return kOfLoha;
    case AdapterMethod::kVera: return kOfVera;
    case AdapterMethod::kRandLora: return kOfRandLora;
    case AdapterMethod::kIa3: return kOfIa3;
    case AdapterMethod::kMlx: return kOfMlx;
  }
  return {};
}
std::span<const Spelling> of_embedding(AdapterMethod method) {
  if (method == AdapterMethod::kLora) return kOfEmbedding;
  return {};
}
/// Projections that all places share, after "base_model.".
std::span<const Spelling> shared_by(AdapterMethod method) {
  static constexpr Spelling kByVera[] = {{AdapterPart::kSharedA, "vera_A"},
                                         {AdapterPart::kSharedB, "vera_B"}};
  static constexpr Spelling kByRandLora[] = {{AdapterPart::kSharedA, "randlora_A"},
                                             {AdapterPart::kSharedB, "randlora_B"}};
  if (method == AdapterMethod::kVera) return kByVera;
  if (method == AdapterMethod::kRandLora) return kByRandLora;
  return {};
}
// base_layer: PEFT saves the base, too, where LoRA adapts it or the vocabulary was resized.
constexpr Spelling kOfVocabulary[] = {
    {AdapterPart::kWeight, ".weight"},
    {AdapterPart::kWeight, ".base_layer.weight"},
    {AdapterPart::kWeight, ".token_adapter.base_layer.weight"},
    {AdapterPart::kWeight, ".modules_to_save.weight"},
    {AdapterPart::kOriginal, ".original_module.weight"},
    {AdapterPart::kTokenRows, ".token_adapter.trainable_tokens_delta"},
};

constexpr Spelling kOfScore[] = {
    {AdapterPart::kWeight, ".weight"},
    {AdapterPart::kWeight, ".modules_to_save.weight"},
    {AdapterPart::kWeightBias, ".bias"},
    {AdapterPart::kWeightBias, ".modules_to_save.bias"},
    {AdapterPart::kOriginal, ".original_module.weight"},
    {AdapterPart::kOriginalBias, ".original_module.bias"},
};

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Calls take(segment) for what lies between the dots.
template <class Take>
void for_segments(std::string_view text, const Take& take) {
  for (;;) {
    const size_t end = text.find('.');
    take(text.substr(0, end));
    if (end == text.npos) return;
    text.remove_prefix(end + 1);
  }
}

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string without_wrappers(std::string_view text) {
  std::string kept;
  for_segments(text, [&](std::string_view segment) {
    if (is_one_of(segment, kWrappers)) return;
    if (!kept.empty()) kept += '.';
    kept += segment;
  });
  return kept;
}

/// LoRA-XS names its matrix as a neighbour of the module, "q_proj_lora_latent_mapping.weight", or
/// as a part of it, "q_proj.default_lora_latent_mapping.weight": here it is
/// "q_proj.lora_latent_mapping.weight".
std::string with_latent_segment(std::string name) {
  constexpr std::string_view kEnd = "_lora_latent_mapping.weight", kDefault = ".default";
  if (!name.ends_with(kEnd)) return name;
  name.resize(name.size() - kEnd.size());
  if (name.ends_with(kDefault)) name.resize(name.size() - kDefault.size());
  return (name += '.') += kEnd.substr(1);
}

/// Takes the name of the adapter out of ".lora_A.<name>.weight" and its kin: `part` begins with a
/// dot.
std::string take_adapter_name(std::string& part) {
  std::string kept, name;
  bool is_next = false;
  for_segments(std::string_view(part).substr(1), [&](std::string_view segment) {
    const bool is_name = is_next && segment != "weight" && segment != "bias";
    is_next = is_one_of(segment, kNamed);
    if (is_name) {
      name = segment;
    } else {
      kept += '.';
      kept += segment;
    }
  });
  part = std::move(kept);
  return name;
}

/// Takes "layers.<layer>.<module>" from the front of the text.
std::optional<AdapterPlace> consume_layer(std::string_view& text) {
  if (!consume(text, kLayers.substr(kModel.size()))) return std::nullopt;
  const std::string_view digits = text.substr(0, text.find('.'));
  const bool is_number = !digits.empty() && digits.size() <= 9 &&
                         digits.find_first_not_of("0123456789") == digits.npos &&
                         (digits.size() == 1 || digits[0] != '0');
  if (!is_number || digits.size() == text.size()) return std::nullopt;
  text.remove_prefix(digits.size() + 1);
  for (const LinearModule& module : kLinearModules) {
    if (!text.starts_with(module.name) || text.substr(module.name.size(), 1) != ".") continue;
    text.remove_prefix(module.name.size());
    return AdapterPlace{Kind::kLayer, std::stoll(std::string(digits)), &module};
  }
  return std::nullopt;
}

/// Removes what precedes "model." in a model that takes more than text; returns the prefix of its
/// decoder.
std::string_view consume_half(std::string_view& text, std::string& plain) {
  for (const std::string_view half : kNestedDecoders) {
    if (!consume(text, half)) continue;
    plain = "model." + std::string(text);
    text = plain;
    return half;
  }
  if (text.starts_with(kNestedHead)) text.remove_prefix(kNestedHead.size() - kHead.size());
  return "model.";
}

std::optional<AdapterPlace> consume_place(std::string_view& text) {
  (void)consume(text, kModel);
  if (consume(text, kEmbedding.substr(kModel.size()))) return AdapterPlace{Kind::kEmbedding};
  if (consume(text, kHead)) return AdapterPlace{Kind::kHead};
  if (consume(text, kScore)) return AdapterPlace{Kind::kScore};
  return consume_layer(text);
}

std::optional<AdapterPart> part_of(std::string_view text, std::span<const Spelling> spellings) {
  for (const Spelling& spelling : spellings) {
    if (spelling.text == text) return spelling.part;
  }
  return std::nullopt;
}

std::optional<AdapterPart> part_at(Kind kind, std::string_view text, AdapterMethod method) {
  if (kind == Kind::kScore) return part_of(text, kOfScore);
  const bool is_embedding = kind == Kind::kEmbedding;
  const auto part = part_of(text, is_embedding ? of_embedding(method) : of_linear(method));
  return part || kind == Kind::kLayer ? part : part_of(text, kOfVocabulary);
}

}  // namespace

std::string AdapterPlace::name() const {
  switch (kind) {
    case Kind::kEmbedding: return std::string(kEmbedding);
    case Kind::kHead: return std::string(kHead);
    case Kind::kScore: return std::string(kScore);
    case Kind::kLayer: break;
  }
  return std::string(kLayers) + std::to_string(layer) + '.' + std::string(module->name);
}

std::optional<PeftTensorName> parse_peft_name(std::string_view text, AdapterMethod method) {
  const std::string plain = with_latent_segment(without_wrappers(text));
  text = plain;
  (void)consume(text, kDataParallel);
  (void)consume(text, kPrefix);
  (void)consume(text, kDataParallel);
  std::string half;
  const std::string_view decoder = consume_half(text, half);
  const auto place = consume_place(text);
  if (!place || !text.starts_with('.')) return std::nullopt;
  std::string rest(text), adapter = take_adapter_name(rest);
  const auto part = part_at(place->kind, rest, method);
  if (!part) return std::nullopt;
  return PeftTensorName{*place, *part, std::move(adapter), decoder};
}

std::optional<AdapterPart> parse_shared_name(std::string_view text, AdapterMethod method) {
  const std::string plain = without_wrappers(text);
  text = plain;
  if (!consume(text, kBase)) return std::nullopt;
  return part_of(text.substr(0, text.find('.')),
                 shared_by(method));  // the adapter's name may follow
}

bool is_of_other_half(std::string_view text) {
  for (const std::string_view module : kOtherHalves) {
    const size_t at = text.find(module);
    if (at != text.npos && (at == 0 || text[at - 1] == '.')) return true;
  }
  return false;
}

std::string peft_name(const AdapterPlace& place, AdapterPart part) {
  std::string name = std::string(kPrefix) + place.name();
  const auto find = [&](std::span<const Spelling> spellings) {
    for (const Spelling& spelling : spellings) {
      if (spelling.part == part) return name += spelling.text, true;
    }
    return false;
  };
  if (place.kind == Kind::kScore) {
    (void)find(kOfScore);
    return name;
  }
  if (place.kind == Kind::kEmbedding && find(kOfEmbedding)) return name;
  for (const auto& spellings :
       {std::span<const Spelling>(kOfLora), std::span<const Spelling>(kOfLoha),
        std::span<const Spelling>(kOfVera), std::span<const Spelling>(kOfRandLora),
        std::span<const Spelling>(kOfIa3), std::span<const Spelling>(kOfMlx),
        std::span<const Spelling>(kOfVocabulary)}) {
    if (find(spellings)) break;
  }
  return name;
}

std::string shared_name(AdapterPart part, AdapterMethod method) {
  for (const Spelling& spelling : shared_by(method)) {
    if (spelling.part == part) return std::string(kBase) += spelling.text;
  }
  return {};
}

}  // namespace heddle::model
