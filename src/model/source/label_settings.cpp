#include "model/source/label_settings.h"

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::model {

std::vector<std::string> read_labels(const files::Json& config, int64_t num_labels,
                                     const std::string& path) {
  std::vector<std::string> labels = unnamed_labels(num_labels);
  const files::Json* const named = files::find_given(config, "id2label");
  if (named == nullptr || files::size_of(*named) != labels.size()) return labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    const files::Json* const label = files::find_member(*named, std::to_string(i));
    HEDDLE_CHECK(label != nullptr && label->is_string(), path, ": id2label has no text for ", i);
    labels[i] = std::string(files::text_of(*label));
  }
  return labels;
}

ScoreActivation score_activation(const files::Json& config, int64_t num_labels,
                                 const std::string& path) {
  const files::Json* const type = files::find_given(config, "problem_type");
  if (type == nullptr)
    return num_labels == 1 ? ScoreActivation::kSigmoid : ScoreActivation::kSoftmax;
  if (files::is_text(*type, "regression")) return ScoreActivation::kNone;
  if (files::is_text(*type, "multi_label_classification")) return ScoreActivation::kSigmoid;
  HEDDLE_CHECK(files::is_text(*type, "single_label_classification"), path, ": problem_type is ",
               type->is_string() ? files::quote(files::text_of(*type)) : files::json_kind(*type),
               ", expected regression, single_label_classification or multi_label_classification");
  return num_labels == 1 ? ScoreActivation::kSigmoid : ScoreActivation::kSoftmax;
}

}  // namespace heddle::model
