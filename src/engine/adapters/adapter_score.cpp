#include "engine/adapters/adapter_score.h"

#include <utility>
#include <vector>

namespace heddle {

std::shared_ptr<const model::ScoreHead> score_head_of(const model::Adapter& adapter,
                                                      const model::ModelFiles& files) {
  if (!adapter.score().is_present()) return nullptr;
  const int64_t num_labels = adapter.score().rows;
  const std::shared_ptr<const model::ScoreHead> own = files.score_head();
  const model::ScoreActivation by_default =
      num_labels == 1 ? model::ScoreActivation::kSigmoid : model::ScoreActivation::kSoftmax;
  const bool is_alike = own != nullptr && own->num_labels() == num_labels;
  std::vector<float> bias;
  if (adapter.score_bias().is_present()) bias = adapter.score_bias().floats();
  return std::make_shared<const model::ScoreHead>(adapter.score().floats(), std::move(bias),
                                                  files.label_names(num_labels),
                                                  is_alike ? own->activation() : by_default);
}

}  // namespace heddle
