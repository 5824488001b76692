#include "model/families/families.h"

#include <array>

namespace heddle::model {

std::span<const Family* const> families() {
  static constexpr std::array<const Family*, 10> kFamilies = {
      &kGemma2, &kGemma3, &kGranite, &kLlama, &kMistral,
      &kOlmo2,  &kPhi3,   &kQwen2,   &kQwen3, &kSmolLm3};
  return kFamilies;
}

}  // namespace heddle::model
