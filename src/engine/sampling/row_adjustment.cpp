#include "engine/sampling/row_adjustment.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "heddle/core/error.h"

namespace heddle {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool ends_with(std::span<const int32_t> tokens, std::span<const int32_t> end) {
  return tokens.size() >= end.size() && std::ranges::equal(tokens.last(end.size()), end);
}

}  // namespace

std::unique_ptr<RowAdjustment> RowAdjustment::make(const Request& request, const RowText& text,
                                                   std::span<const int32_t> prompt,
                                                   std::span<const WordTokens> bad_words,
                                                   int64_t num_logits) {
  for (const int32_t token : request.stop_token_ids) {
    HEDDLE_CHECK(token < num_logits, "stop_token_ids has token ", token, ", the vocabulary has ",
                 num_logits);
  }
  const SamplingOptions& sampling = request.sampling;
  const bool repeats = sampling.repetition_penalty != 1.0f;
  const bool has_penalties =
      repeats || sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f;
  if (!has_penalties && request.logit_bias.empty() && request.bad_words.empty() &&
      request.allowed_token_ids.empty() && request.min_tokens == 0) {
    return nullptr;
  }
  auto row = std::make_unique<RowAdjustment>();
  row->sampling_ = sampling;
  row->has_penalties_ = has_penalties;
  row->min_tokens_ = request.min_tokens;
  row->num_logits_ = num_logits;
  row->forbid_all_but(request.allowed_token_ids);
  // Sorted, so that each is put behind the others.
  std::vector<int32_t> seen(prompt.begin(), prompt.end());
  if (!repeats) seen.clear();
  // A tokenizer, or an adapter's embedding, may have more tokens than there are logits.
  const auto has_no_logit = [&](int32_t token) { return token >= num_logits; };
  std::erase_if(seen, has_no_logit);
  std::ranges::sort(seen);
  for (const int32_t token : seen) ++row->prompt_counts_[row->entry(token)];
  for (const auto& [token, bias] : request.logit_bias) {
    HEDDLE_CHECK(token < num_logits, "logit_bias has token ", token, ", the vocabulary has ",
                 num_logits);
    float& own = row->bias_[row->entry(token)];
    if (own != kNever) own = bias;
  }
  if (request.min_tokens > 0) {
    row->ends_ = request.stop_token_ids;
    if (!request.ignore_end) {
      row->ends_.insert(row->ends_.end(), text.end_tokens.begin(), text.end_tokens.end());
    }
    std::erase_if(row->ends_, has_no_logit);
    for (const int32_t token : row->ends_) (void)row->entry(token);
  }
  row->add_bad_words(bad_words);
  if (!has_penalties && row->token_ids_.empty()) return nullptr;  // nothing ends it anyway
  row->forbidden_.reserve(row->ends_.size() + row->bad_words_.size());
  return row;
}

/// An entry for each token of the vocabulary, where any are named.
void RowAdjustment::forbid_all_but(std::span<const int32_t> allowed) {
  if (allowed.empty()) return;
  for (const int32_t token : allowed) {
    HEDDLE_CHECK(token < num_logits_, "allowed_token_ids has token ", token,
                 ", the vocabulary has ", num_logits_);
  }
  const auto size = static_cast<size_t>(num_logits_);
  token_ids_.resize(size);
  std::iota(token_ids_.begin(), token_ids_.end(), 0);
  prompt_counts_.assign(size, 0);
  output_counts_.assign(size, 0);
  bias_.assign(size, kNever);
  for (const int32_t token : allowed) bias_[static_cast<size_t>(token)] = 0.0f;
}

/// Each word as it begins a text, and as it stands behind a space where that is a word of as many
/// tokens that begins with another one.
void RowAdjustment::add_bad_words(std::span<const WordTokens> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& [plain, spaced] = words[i];
    HEDDLE_CHECK(!plain.empty(), "bad_words[", i, "] has no tokens");
    for (const std::vector<int32_t>* word : {&plain, &spaced}) {
      for (const int32_t token : *word) {
        HEDDLE_CHECK(token < num_logits_, "bad_words[", i, "] has token ", token,
                     ", the vocabulary has ", num_logits_);
      }
    }
    const bool differs = spaced.size() == plain.size() && spaced.front() != plain.front();
    bad_words_.push_back(plain);
    if (differs) bad_words_.push_back(spaced);
  }
  for (const auto& word : bad_words_) (void)entry(word.back());
}

void RowAdjustment::reserve(int64_t longest_answer) {
  const auto more = has_penalties_ ? static_cast<size_t>(longest_answer) : size_t{0};
  const size_t most = token_ids_.size() + more;
  for (auto* list : {&token_ids_, &prompt_counts_, &output_counts_}) list->reserve(most);
  bias_.reserve(most);
  most_entries_ = static_cast<int64_t>(most);
}

size_t RowAdjustment::entry(int32_t token) {
  const auto place = std::ranges::lower_bound(token_ids_, token);
  const auto i = place - token_ids_.begin();
  if (place == token_ids_.end() || *place != token) {
    token_ids_.insert(place, token);
    prompt_counts_.insert(prompt_counts_.begin() + i, 0);
    output_counts_.insert(output_counts_.begin() + i, 0);
    bias_.insert(bias_.begin() + i, 0.0f);
  }
  return static_cast<size_t>(i);
}

void RowAdjustment::forbid(int32_t token) {
  float& bias = bias_[entry(token)];
  if (bias == kNever) return;
  forbidden_.push_back({token, bias});
  bias = kNever;
}

void RowAdjustment::prepare(std::span<const int32_t> answer) {
  for (const auto& [token, bias] : forbidden_) bias_[entry(token)] = bias;
  forbidden_.clear();
  if (std::ssize(answer) < min_tokens_) {
    for (const int32_t token : ends_) forbid(token);
  }
  for (const std::vector<int32_t>& word : bad_words_) {
    if (ends_with(answer, std::span(word).first(word.size() - 1))) forbid(word.back());
  }
}

void RowAdjustment::count(int32_t token) {
  if (has_penalties_) ++output_counts_[entry(token)];
}

}  // namespace heddle
