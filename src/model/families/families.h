#pragma once

#include "model/families/family.h"

namespace heddle::model {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3, kGranite, kOlmo2,
    kSmolLm3;

}  // namespace heddle::model
