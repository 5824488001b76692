#include "engine/rules/row_mask.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "heddle/core/error.h"

#include "core/math.h"
#include "engine/rules/grammar/work_limit.h"

namespace heddle {
namespace {

constexpr int kBits = 32;  // of a word
/// Processor time of an answer's masks, so that no grammar holds up the others of a batch: at
/// first, and for each token.
constexpr double kFirstSeconds = 0.5, kTokenSeconds = 0.012;
constexpr int64_t kStepBytes = int64_t{32} << 20;  // that a token may add

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

}  // namespace

RowMask::Thoughts::Thoughts(const ThinkingLimit& limit, const RowText& text) : limit_(limit) {
  if (limit.max_tokens < 0) return;
  HEDDLE_CHECK(!limit.end.empty(), "thinking: max_tokens is ", limit.max_tokens,
               ", and end is empty; expected the text that ends the model's thoughts");
  end_tokens_ = text.tokenizer->encode(limit.end, tokenizer::ControlTokens::kParse);
  HEDDLE_CHECK(!end_tokens_.empty(), "thinking: end has no tokens");
  have_begun_ = limit.begin.empty();
}

void RowMask::Thoughts::add(std::string_view bytes) {
  if (have_ended_ || !have_limit()) return;
  if (!have_begun_) {
    begin_ += bytes;
    const std::string_view text = without_blanks(begin_);
    if (text.size() < limit_.begin.size()) {
      have_ended_ = !std::string_view(limit_.begin).starts_with(text);
      return;
    }
    have_begun_ = text.starts_with(limit_.begin);
    have_ended_ = !have_begun_;
    return;
  }
  ++num_tokens_;
  tail_ += bytes;
  have_ended_ = tail_.find(limit_.end) != std::string::npos;
  if (tail_.size() >= limit_.end.size()) tail_.erase(0, tail_.size() - limit_.end.size() + 1);
}

int32_t RowMask::Thoughts::forced() const {
  const int64_t past = num_tokens_ - limit_.max_tokens;
  const bool is_forced = have_limit() && have_begun_ && !have_ended_ && past >= 0;
  return is_forced ? end_tokens_[static_cast<size_t>(past % std::ssize(end_tokens_))] : -1;
}

std::unique_ptr<RowMask> RowMask::make(const Request& request, const RowText& text,
                                       int64_t num_logits, grammar::FormatCompiler& compiler) {
  Thoughts thoughts(request.thinking, text);
  if (request.format.is_free() && !thoughts.have_limit()) return nullptr;
  HEDDLE_CHECK(request.format.is_free() || !request.ignore_end,
               "ignore_eos is true, and the answer has a format, which it ends with; leave one of "
               "them out");
  auto mask = std::make_unique<RowMask>();
  mask->tokenizer_ = text.tokenizer;
  mask->thoughts_ = std::move(thoughts);
  mask->num_logits_ = num_logits;
  if (!request.format.is_free()) mask->job_ = compiler.begin(request.format, text, num_logits);
  return mask;
}

void RowMask::begin(int64_t max_drafts) {
  const auto num_words = static_cast<size_t>(ceil_div(num_logits_, int64_t{kBits}));
  words_.assign(static_cast<size_t>(1 + max_drafts) * num_words, 0);
  failure_.reserve(256);
  if (job_ != nullptr && matcher_ == nullptr) matcher_ = job_->result().matcher();
}

std::span<int32_t> RowMask::words_of(size_t i) {
  const auto num_words = static_cast<size_t>(ceil_div(num_logits_, int64_t{kBits}));
  return std::span(words_).subspan(i * num_words, num_words);
}

std::span<const int32_t> RowMask::words(int64_t i) const {
  return const_cast<RowMask*>(this)->words_of(static_cast<size_t>(i));
}

std::string_view RowMask::bytes_of(int32_t token) const {
  return token < tokenizer_->vocab_size() ? tokenizer_->token_bytes(token) : std::string_view();
}

void RowMask::accept(int32_t token) {
  thoughts_.add(bytes_of(token));
  if (matcher_ != nullptr && !matcher_->accept(token)) {
    throw_error(ErrorCode::kInvalidArgument, "format: the answer has left it with token ", token);
  }
}

/// Whether the draft may come next, and more tokens after it.
bool RowMask::accept_draft(int32_t token) {
  const bool fits = token >= 0 && token < num_logits_;
  if (!fits || (matcher_ != nullptr && !matcher_->accept(token))) return false;
  thoughts_.add(bytes_of(token));
  ++num_drafted_;
  return matcher_ == nullptr || !matcher_->has_ended();
}

void RowMask::fill_words(size_t i) {
  const std::span<int32_t> words = words_of(i);
  if (const int32_t forced = thoughts_.forced(); forced >= 0) {
    std::ranges::fill(words, 0);
    words[static_cast<size_t>(forced / kBits)] = static_cast<int32_t>(1u << (forced % kBits));
  } else if (matcher_ != nullptr) {
    matcher_->fill(words);
  } else {
    std::ranges::fill(words, -1);
  }
  ++num_fills_;
}

/// The one token of words_of(i); -1: there are more, or none.
int32_t RowMask::only_token(size_t i) const {
  int32_t only = -1;
  const std::span<const int32_t> words = this->words(static_cast<int64_t>(i));
  for (size_t w = 0; w < words.size(); ++w) {
    const auto bits = static_cast<uint32_t>(words[w]);
    if (bits == 0) continue;
    if (only >= 0 || !std::has_single_bit(bits)) return -1;
    only = static_cast<int32_t>(w) * kBits + std::countr_zero(bits);
  }
  return only;
}

template <class Visit>
void RowMask::visit_drafts(std::span<const int32_t> answer, const Visit& visit) noexcept {
  if (!failure_.empty()) return;
  try {
    const double allowed = kFirstSeconds + kTokenSeconds * static_cast<double>(num_fills_);
    const grammar::LimitedWork limited({allowed - num_seconds_, kStepBytes});
    for (; num_accepted_ < answer.size(); ++num_accepted_) accept(answer[num_accepted_]);
    const Thoughts thoughts = thoughts_;
    if (std::exchange(filled_at_, answer.size()) != answer.size()) fill_words(0);
    visit();
    if (matcher_ != nullptr && num_drafted_ > 0) matcher_->rewind(num_drafted_);
    if (num_drafted_ > 0) thoughts_ = thoughts;
    num_drafted_ = 0;
    num_seconds_ += limited.seconds();
  } catch (const std::exception& failure) {
    try {
      failure_ = failure.what();
    } catch (...) {
      failure_ = "out of memory";  // short enough to need none
    }
    std::ranges::fill(words_, -1);
  }
}

void RowMask::draft(std::span<const int32_t> answer, int64_t max_drafts,
                    std::vector<int32_t>& drafts) noexcept {
  visit_drafts(answer, [&] {
    size_t num_kept = 0;
    bool goes_on = true;
    while (goes_on && num_kept < drafts.size()) {
      goes_on = accept_draft(drafts[num_kept]);
      if (goes_on) ++num_kept;
    }
    drafts.resize(num_kept);
    if (!goes_on) return;
    for (; std::ssize(drafts) < max_drafts; ++num_kept) {
      if (num_kept > 0) fill_words(num_kept);
      const int32_t only = only_token(num_kept);
      if (only < 0 || !accept_draft(only)) return;
      drafts.push_back(only);
    }
  });
}

void RowMask::fill(std::span<const int32_t> answer, std::span<const int32_t> drafts) noexcept {
  visit_drafts(answer, [&] {
    bool goes_on = true;
    for (size_t i = 0; i < drafts.size(); ++i) {
      goes_on = goes_on && accept_draft(drafts[i]);
      if (goes_on) {
        fill_words(i + 1);
      } else {
        std::ranges::fill(words_of(i + 1), -1);  // never drawn from: its draft is refused
      }
    }
  });
}

void RowMask::check(int32_t token, int64_t i) const {
  if (!failure_.empty()) throw_error(ErrorCode::kInvalidArgument, failure_);
  const auto word = static_cast<uint32_t>(words(i)[static_cast<size_t>(token / kBits)]);
  HEDDLE_CHECK((word >> (token % kBits) & 1) != 0,
               "nothing is left to draw: the format of the answer allows only tokens that "
               "min_tokens, bad_words, logit_bias or allowed_token_ids forbid");
}

}  // namespace heddle
