#pragma once

#include <memory>

#include "model/adapters/adapter.h"
#include "model/config/score_head.h"
#include "model/source/model_files.h"

namespace heddle {

/// The score head of an adapter whose values are read; null: it has none. Its logits become what
/// those of the model's own head become, where that has as many labels, else by their number.
[[nodiscard]] std::shared_ptr<const model::ScoreHead> score_head_of(const model::Adapter& adapter,
                                                                    const model::ModelFiles& files);

}  // namespace heddle
