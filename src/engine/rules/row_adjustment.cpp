#include "engine/rules/row_adjustment.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

std::unique_ptr<RowAdjustment> RowAdjustment::make(const Request& request, const RowText& text,
                                                   const RequestTokens& tokens,
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
      tokens.allowed == nullptr && request.min_tokens == 0) {
    return nullptr;
  }
  auto row = std::make_unique<RowAdjustment>();
  row->sampling_ = sampling;
  row->has_penalties_ = has_penalties;
  row->min_tokens_ = request.min_tokens;
  row->num_logits_ = num_logits;
  row->allowed_ = tokens.allowed;
  if (row->allowed_ != nullptr) {
    HEDDLE_CHECK(row->allowed_->back() < num_logits, "allowed_token_ids has token ",
                 row->allowed_->back(), ", the vocabulary has ", num_logits);
  }
  // A tokenizer, or an adapter's embedding, may have more tokens than there are logits.
  const auto has_no_logit = [&](int32_t token) { return token >= num_logits; };
  std::vector<int32_t> prompt;
  if (repeats) prompt = tokens.prompt;
  std::erase_if(prompt, has_no_logit);
  std::vector<int32_t> known = prompt;
  for (const auto& [token, bias] : request.logit_bias) {
    HEDDLE_CHECK(token < num_logits, "logit_bias has token ", token, ", the vocabulary has ",
                 num_logits);
    known.push_back(token);
  }
  if (request.min_tokens > 0) {
    row->ends_ = request.stop_token_ids;
    if (!request.ignore_end) {
      row->ends_.insert(row->ends_.end(), text.end_tokens.begin(), text.end_tokens.end());
    }
    std::erase_if(row->ends_, has_no_logit);
    known.insert(known.end(), row->ends_.begin(), row->ends_.end());
  }
  row->add_bad_words(tokens.bad_words);
  for (const auto& word : row->bad_words_) known.push_back(word.back());
  row->add_entries(std::move(known));
  for (const int32_t token : prompt) ++row->prompt_counts_[row->entry(token)];
  for (const auto& [token, bias] : request.logit_bias) row->bias_[row->entry(token)] = bias;
  const bool has_any = has_penalties || row->allowed_ != nullptr || !row->token_ids_.empty();
  return has_any ? std::move(row) : nullptr;  // else nothing ends it anyway
}

/// An entry for each of them, which may repeat; there was none.
void RowAdjustment::add_entries(std::vector<int32_t> tokens) {
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  token_ids_ = std::move(tokens);
  prompt_counts_.assign(token_ids_.size(), 0);
  output_counts_.assign(token_ids_.size(), 0);
  bias_.assign(token_ids_.size(), 0.0f);
}

/// An entry for each token of the vocabulary.
void RowAdjustment::forbid_all_but_allowed() {
  std::vector<int32_t> all(static_cast<size_t>(num_logits_));
  std::iota(all.begin(), all.end(), 0);
  const auto old_ids = std::exchange(token_ids_, {});
  const auto old_counts = std::exchange(prompt_counts_, {});
  const auto old_bias = std::exchange(bias_, {});
  token_ids_ = std::move(all);
  prompt_counts_.assign(token_ids_.size(), 0);
  output_counts_.assign(token_ids_.size(), 0);
  bias_.assign(token_ids_.size(), kNever);
  for (const int32_t token : *allowed_) bias_[static_cast<size_t>(token)] = 0.0f;
  for (size_t i = 0; i < old_ids.size(); ++i) {
    const auto token = static_cast<size_t>(old_ids[i]);
    prompt_counts_[token] = old_counts[i];
    if (bias_[token] != kNever) bias_[token] = old_bias[i];
  }
}

/// Each word as it begins a text, and after a space where that is a word of as many tokens that
/// begins with another one.
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
}

void RowAdjustment::reserve(int64_t longest_answer) {
  if (allowed_ != nullptr) forbid_all_but_allowed();
  const auto more = has_penalties_ ? static_cast<size_t>(longest_answer) : size_t{0};
  const size_t max_entries = token_ids_.size() + more;
  for (auto* list : {&token_ids_, &prompt_counts_, &output_counts_}) list->reserve(max_entries);
  bias_.reserve(max_entries);
  max_entries_ = static_cast<int64_t>(max_entries);
  forbidden_.reserve(bad_words_.size());
  forbidden_ends_.reserve(ends_.size());
  for (const int32_t token : ends_) forbid(token, forbidden_ends_);
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

void RowAdjustment::forbid(int32_t token, std::vector<Forbidden>& forbidden) {
  float& bias = bias_[entry(token)];
  if (bias == kNever) return;
  forbidden.push_back({token, bias});
  bias = kNever;
}

/// Restores the biases of all of them.
void RowAdjustment::allow(std::vector<Forbidden>& forbidden) {
  for (const auto& [token, bias] : forbidden) bias_[entry(token)] = bias;
  forbidden.clear();
}

bool RowAdjustment::Tokens::ends_with(std::span<const int32_t> end) const {
  const size_t of_drafts = std::min(end.size(), drafts.size());
  const size_t of_answer = end.size() - of_drafts;
  return answer.size() >= of_answer &&
         std::ranges::equal(answer.last(of_answer), end.first(of_answer)) &&
         std::ranges::equal(drafts.last(of_drafts), end.last(of_drafts));
}

void RowAdjustment::prepare(const Tokens& tokens) {
  allow(forbidden_);
  const bool may_end = tokens.size() >= min_tokens_;
  if (may_end) {
    allow(forbidden_ends_);
  } else if (forbidden_ends_.empty()) {  // it was past that with the drafts of a step before
    for (const int32_t token : ends_) forbid(token, forbidden_ends_);
  }
  for (const std::vector<int32_t>& word : bad_words_) {
    if (tokens.ends_with(std::span(word).first(word.size() - 1))) forbid(word.back(), forbidden_);
  }
}

void RowAdjustment::count(int32_t token) {
  if (has_penalties_) ++output_counts_[entry(token)];
}

/// An entry that changes nothing any more goes, so that refused drafts do not add up to more than
/// there is room for. With allowed_token_ids every token has an entry beforehand.
void RowAdjustment::uncount(int32_t token) {
  if (!has_penalties_) return;
  const size_t i = entry(token);
  const bool stays = --output_counts_[i] != 0 || prompt_counts_[i] != 0 || bias_[i] != 0.0f;
  if (stays || allowed_ != nullptr) return;
  const auto at = static_cast<ptrdiff_t>(i);
  for (auto* counts : {&token_ids_, &prompt_counts_, &output_counts_}) {
    counts->erase(counts->begin() + at);
  }
  bias_.erase(bias_.begin() + at);
}

}  // namespace heddle
