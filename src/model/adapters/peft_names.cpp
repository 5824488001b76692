#include "model/adapters/peft_names.h"

namespace heddle::model {
namespace {

using Kind = AdapterPlace::Kind;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kEmbedding = "model.embed_tokens", kHead = "lm_head";
constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kHalves[] = {"model.language_model.", "language_model.model."};
constexpr std::string_view kNestedHead = "language_model.lm_head";
constexpr std::string_view kOtherHalves[] = {"visual.", "vision_tower.", "vision_model.",
                                             "multi_modal_projector.", "audio_tower."};
constexpr std::string_view kAdapterName = ".default";  // which some tools leave in

/// How a part is called behind its module; the first of several is what PEFT writes now.
struct Spelling {
  AdapterPart part;
  std::string_view text;
};
constexpr Spelling kOfLinear[] = {
    {AdapterPart::kA, ".lora_A.weight"},
    {AdapterPart::kB, ".lora_B.weight"},
    {AdapterPart::kBias, ".lora_B.bias"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector.weight"},
};
constexpr Spelling kOfEmbedding[] = {
    {AdapterPart::kA, ".lora_embedding_A"},
    {AdapterPart::kB, ".lora_embedding_B"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector"},
    {AdapterPart::kMagnitude, ".lora_magnitude_vector.weight"},
};
// base_layer: PEFT saves the base, too, where LoRA adapts it or the vocabulary was resized.
constexpr Spelling kOfVocabulary[] = {
    {AdapterPart::kWeight, ".weight"},
    {AdapterPart::kWeight, ".base_layer.weight"},
    {AdapterPart::kWeight, ".token_adapter.base_layer.weight"},
    {AdapterPart::kWeight, ".modules_to_save.weight"},
    {AdapterPart::kTokenRows, ".token_adapter.trainable_tokens_delta"},
};

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes "model.layers.<layer>.<module>" from the front of the text.
std::optional<AdapterPlace> consume_layer(std::string_view& text) {
  if (!consume(text, kLayers)) return std::nullopt;
  const std::string_view digits = text.substr(0, text.find('.'));
  const bool is_number = !digits.empty() && digits.size() <= 9 &&
                         digits.find_first_not_of("0123456789") == digits.npos &&
                         (digits.size() == 1 || digits[0] != '0');
  if (!is_number || digits.size() == text.size()) return std::nullopt;
  text.remove_prefix(digits.size() + 1);
  for (const LinearModule& module : kLinearModules) {
    const std::string_view name = module.name;
    if (!text.starts_with(name) || text.substr(name.size(), 1) != ".") continue;
    text.remove_prefix(name.size());
    return AdapterPlace{Kind::kLayer, std::stoll(std::string(digits)), &module};
  }
  return std::nullopt;
}

/// Takes away what lies before "model." in a model that takes more than text; returns where its
/// decoder lies.
std::string_view consume_half(std::string_view& text, std::string& plain) {
  for (const std::string_view half : kHalves) {
    if (!consume(text, half)) continue;
    plain = "model." + std::string(text);
    text = plain;
    return half;
  }
  if (text.starts_with(kNestedHead)) text.remove_prefix(kNestedHead.size() - kHead.size());
  return "model.";
}

std::optional<AdapterPlace> consume_place(std::string_view& text) {
  if (consume(text, kEmbedding)) return AdapterPlace{Kind::kEmbedding};
  if (consume(text, kHead)) return AdapterPlace{Kind::kHead};
  return consume_layer(text);
}

template <size_t n>
std::optional<AdapterPart> part_of(std::string_view text, const Spelling (&spellings)[n]) {
  for (const Spelling& spelling : spellings) {
    if (spelling.text == text) return spelling.part;
  }
  return std::nullopt;
}

}  // namespace

std::string AdapterPlace::name() const {
  switch (kind) {
    case Kind::kEmbedding: return std::string(kEmbedding);
    case Kind::kHead: return std::string(kHead);
    case Kind::kLayer: break;
  }
  return std::string(kLayers) + std::to_string(layer) + '.' + module->name;
}

std::optional<PeftTensorName> parse_peft_name(std::string_view text) {
  if (!consume(text, kPrefix)) return std::nullopt;
  std::string half;
  const std::string_view decoder = consume_half(text, half);
  const auto place = consume_place(text);
  if (!place) return std::nullopt;
  std::string rest(text);
  if (const size_t found = rest.find(kAdapterName); found != rest.npos) {
    rest.erase(found, kAdapterName.size());
  }
  auto part =
      place->kind == Kind::kEmbedding ? part_of(rest, kOfEmbedding) : part_of(rest, kOfLinear);
  if (!part && place->kind != Kind::kLayer) part = part_of(rest, kOfVocabulary);
  if (!part) return std::nullopt;
  return PeftTensorName{*place, *part, decoder};
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
  const auto find = [&](const auto& spellings) {
    for (const Spelling& spelling : spellings) {
      if (spelling.part == part) return name += spelling.text, true;
    }
    return false;
  };
  if (!(place.kind == Kind::kEmbedding ? find(kOfEmbedding) : find(kOfLinear))) {
    (void)find(kOfVocabulary);
  }
  return name;
}

}  // namespace heddle::model
