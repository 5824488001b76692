#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heddle::model {

/// What logits of a score head become.
enum class ScoreActivation : uint8_t { kSoftmax, kSigmoid, kNone };

/// The head of a model for sequence classification, of the model's own or of an adapter
/// (modules_to_save: "score"). It lies in host memory: a request uses it once.
class ScoreHead {
 public:
  static constexpr int64_t kMaxLabels = 4096;

  /// weight [labels.size(), hidden_size], bias [labels.size()] or empty.
  ScoreHead(std::vector<float> weight, std::vector<float> bias, std::vector<std::string> labels,
            ScoreActivation activation);

  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }
  [[nodiscard]] int64_t num_labels() const { return std::ssize(labels_); }
  [[nodiscard]] ScoreActivation activation() const { return activation_; }

  /// [num_labels]: weight h + bias, in double and rounded once; with `activates` as probabilities.
  /// h [hidden_size].
  [[nodiscard]] std::vector<float> values(std::span<const float> h, bool activates) const;

 private:
  std::vector<float> weight_, bias_;
  std::vector<std::string> labels_;
  ScoreActivation activation_;
};

/// "LABEL_0", "LABEL_1", ...: what transformers calls labels without names.
[[nodiscard]] std::vector<std::string> unnamed_labels(int64_t num_labels);

}  // namespace heddle::model
