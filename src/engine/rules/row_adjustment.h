#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/text/prompt_tokens.h"
#include "engine/text/row_text.h"

namespace heddle {

/// What a request changes in its logits before a token is drawn: penalties, biases and forbidden
/// tokens. Keeps the counts of its tokens as the entries of LogitAdjustments, by ascending id.
class RowAdjustment {
 public:
  /// nullptr where the request has nothing of that kind. The request was checked; `tokens`: what
  /// the tokenizer made of it; `num_logits`: the size of its vocabulary. Throws Error, which names
  /// the field, where a token or a word is not in the vocabulary.
  static std::unique_ptr<RowAdjustment> make(const Request& request, const RowText& text,
                                             const RequestTokens& tokens, int64_t num_logits);

  /// Room for all tokens of an answer of that length: from here on nothing is allocated. Until then
  /// allowed_token_ids take the memory of their list alone.
  void reserve(int64_t longest_answer);
  /// Entries that there may be after `reserve`.
  [[nodiscard]] int64_t max_entries() const { return max_entries_; }

  /// An answer so far, and drafts after it.
  struct Tokens {
    std::span<const int32_t> answer, drafts{};

    [[nodiscard]] int64_t size() const { return std::ssize(answer) + std::ssize(drafts); }
    [[nodiscard]] bool ends_with(std::span<const int32_t> end) const;
  };
  /// To be called before each draw: what is forbidden next.
  void prepare(const Tokens& tokens);
  /// A token was drawn, or is a draft before the next draw.
  void count(int32_t token);
  /// Takes back `count` of a draft.
  void uncount(int32_t token);

  [[nodiscard]] std::span<const int32_t> token_ids() const { return token_ids_; }
  [[nodiscard]] std::span<const int32_t> prompt_counts() const { return prompt_counts_; }
  [[nodiscard]] std::span<const int32_t> output_counts() const { return output_counts_; }
  [[nodiscard]] std::span<const float> bias() const { return bias_; }
  [[nodiscard]] const SamplingOptions& sampling() const { return sampling_; }

 private:
  struct Forbidden {
    int32_t token;
    float bias;  // that it has of its own
  };

  void add_entries(std::vector<int32_t> tokens);
  void forbid_all_but_allowed();
  void add_bad_words(std::span<const WordTokens> words);
  /// The entry of the token, made where there is none.
  size_t entry(int32_t token);
  void forbid(int32_t token, std::vector<Forbidden>& forbidden);
  void allow(std::vector<Forbidden>& forbidden);

  SamplingOptions sampling_;
  bool has_penalties_ = false;
  int64_t min_tokens_ = 0, num_logits_ = 0, max_entries_ = 0;
  std::vector<int32_t> ends_;                    // tokens that end the answer, which it may not yet
  std::vector<std::vector<int32_t>> bad_words_;  // tokens of each
  std::vector<Forbidden> forbidden_;             // last tokens of bad words, in this step
  std::vector<Forbidden> forbidden_ends_;        // until the answer has min_tokens
  // Ascending; shared by all variants of a request. Null: every token may be drawn.
  std::shared_ptr<const std::vector<int32_t>> allowed_;
  std::vector<int32_t> token_ids_, prompt_counts_, output_counts_;
  std::vector<float> bias_;
};

}  // namespace heddle
