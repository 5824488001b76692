#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// Drafts from the predicted output of a request: the text that its answer is expected to repeat in
/// most parts, such as a file that it edits.
///
///   PredictedText predicted(prediction_tokens);
///   const std::span<const int32_t> drafts = predicted.propose(8);   // its first eight
///   predicted.append(tokens);           // of the answer: those accepted, and the one after them
///   predicted.propose(8);               // what comes next, or nothing where the two differ
///
/// It keeps the place in the prediction where the answer is, 0 at first. A token that is not the
/// next one ends that. Then the place is looked for by the last tokens of the answer: the first one
/// up to 64 tokens after the old place that comes after the last two of them; else, by the last
/// four, the first one anywhere after the old place; else the last one before it. So one edit costs
/// one step with drafts that fail and two tokens without drafts. The old place is that up to which
/// answer and prediction were last the same for six tokens: a place that was wrong does not count.
///
/// A token takes constant time where the answer follows the prediction; else up to some 200
/// comparisons.
class PredictedText {
 public:
  /// Keeps the tokens, and an index of about twelve bytes for each.
  explicit PredictedText(std::vector<int32_t> prediction);

  /// The answer goes on.
  void append(int32_t token);
  void append(std::span<const int32_t> tokens);
  /// Up to max_drafts of the tokens that come next in the prediction; none where it is not known
  /// what comes next. Valid as long as the object.
  [[nodiscard]] std::span<const int32_t> propose(size_t max_drafts) const;

  /// Where in the prediction the answer is, if it is known.
  [[nodiscard]] std::optional<size_t> place() const;
  [[nodiscard]] size_t num_bytes() const;

 private:
  static constexpr size_t kNearMatch = 2, kFarMatch = 4;
  static constexpr size_t kSureMatch = 6;  // tokens that show that a place is right

  void find_place();
  void set_place(size_t place, size_t num_matched);
  [[nodiscard]] bool is_after_last(size_t place, size_t num_tokens) const;
  [[nodiscard]] std::optional<size_t> find_near() const;
  [[nodiscard]] std::optional<size_t> find_far() const;
  [[nodiscard]] size_t bucket_of(std::span<const int32_t> tokens) const;

  std::vector<int32_t> prediction_;
  // The places after each four tokens, ascending, by a hash of these: those of bucket i are
  // places_[starts_[i], starts_[i + 1]).
  std::vector<uint32_t> starts_, places_;

  std::array<int32_t, kFarMatch> last_{};  // the last tokens of the answer, the last one at the end
  size_t num_last_ = 0;                    // up to kFarMatch
  size_t place_ = 0, old_place_ = 0;
  // The last tokens of the answer that are those before the place. The first place is sure.
  size_t num_matched_ = kSureMatch;
  bool has_place_ = true;
};

}  // namespace heddle
