#include "model/adapters/kinds/adapter_method.h"

#include <algorithm>
#include <iterator>

#include "model/config/words.h"

namespace heddle::model {
namespace {

using Method = AdapterMethod;

constexpr AdapterMethodInfo kMethods[] = {
    {Method::kLora, "LORA", 8, "lora_alpha", 8},
    {Method::kLoha, "LOHA", 8, "alpha", 8},
    {Method::kVera, "VERA", 256, "", 0},
    {Method::kRandLora, "RANDLORA", 32, "randlora_alpha", 640},
    {Method::kIa3, "IA3", 1, "", 0},
    {Method::kMlx, "MLX-LM", 8, "", 0},  // its scale is no quotient
};

struct Reason {
  std::string_view peft_types;  // separated by spaces
  std::string_view text;
};
constexpr Reason kReasons[] = {
    {"LOKR", "its delta is a Kronecker product, whose rank is the product of both ranks"},
    {"OFT BOFT HRA ROAD PSOFT", "it turns the weights, which is no sum of the weights and a delta"},
    {"XLORA POLY", "it mixes several adapters anew for each token"},
    {"ADALORA", "its singular values are scaled by how many of them its training left"},
    {"FOURIERFT WAVEFT C3A SHIRA", "its delta is of full rank"},
    {"HIRA DELORA DEFT", "its delta is made of the base model's weights"},
    {"TINYLORA FROD OSF", "its factors are those of a decomposition of the base model's weights"},
    {"VBLORA UNILORA", "its factors are drawn from vectors that all layers share"},
    {"LN_TUNING BEFT SUPERTUNING", "it trains norms or biases"},
    {"TRAINABLE_TOKENS", "rows of tokens run as trainable_token_indices of a LoRA adapter"},
    {"PROMPT_TUNING MULTITASK_PROMPT_TUNING P_TUNING PREFIX_TUNING CPT CARTRIDGE ADAPTION_PROMPT",
     "it adds tokens or keys to the prompt"},
};

}  // namespace

const AdapterMethodInfo& info_of(AdapterMethod method) {
  return *std::ranges::find(kMethods, method, &AdapterMethodInfo::method);
}

const AdapterMethodInfo* find_method(std::string_view peft_type) {
  if (peft_type == info_of(Method::kMlx).peft_type) return nullptr;  // which has no peft_type
  const auto* const found = std::ranges::find(kMethods, peft_type, &AdapterMethodInfo::peft_type);
  return found == std::end(kMethods) ? nullptr : found;
}

std::string_view why_not(std::string_view peft_type) {
  for (const Reason& reason : kReasons) {
    if (is_word_of(reason.peft_types, peft_type)) return reason.text;
  }
  return "heddle does not compute it";
}

}  // namespace heddle::model
