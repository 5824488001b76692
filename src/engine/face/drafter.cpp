#include "engine/face/drafter.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "heddle/core/error.h"

#include "engine/drafts/ngram_drafts.h"
#include "files/printable.h"

namespace heddle {
namespace {

/// Steps without a draft after which steps wait for a row every so many tokens only.
constexpr int64_t kPatience = 16, kAskedEvery = 8;
/// Adapters whose acceptance is known.
constexpr size_t kMaxAverages = 4096;

DraftMethod method_of(const std::string& name) {
  const std::optional<DraftMethod> method = draft_method_of(name);
  HEDDLE_CHECK(method.has_value(), "speculation is ", files::quote(name), ", expected ",
               kDraftMethods);
  return *method;
}

}  // namespace

Drafter::Drafter(const SpeculationOptions& options, int64_t max_rows)
    : options_(options),
      method_(method_of(options.method)),
      memories_({.max_bytes = static_cast<size_t>(options.memory)}) {
  if (!is_on()) return;
  lengths_.reserve(static_cast<size_t>(max_rows), kMaxStepDrafts);
  lengths_.max_drafts = kMaxStepDrafts;
  offering_.reserve(static_cast<size_t>(max_rows));
}

std::unique_ptr<RowDrafts> Drafter::drafts_of(const std::string& method,
                                              std::vector<int32_t> prediction) const {
  const DraftMethod own = method.empty() ? method_ : method_of(method);
  HEDDLE_CHECK(own == DraftMethod::kOff || is_on(), "speculation is ", method,
               ", but the engine has none (--speculate off)");
  HEDDLE_CHECK(own <= DraftMethod::kNgram || method_ == own, "speculation is ", method,
               ", but the engine has ", options_.method, " (--speculate ", options_.method, ")");
  if (own == DraftMethod::kOff) {
    HEDDLE_CHECK(prediction.empty(), "a request has a prediction, but ",
                 is_on() ? "its speculation is off" : "the engine has no speculation",
                 "; it takes one with any method (--speculate)");
    return nullptr;
  }
  auto drafts = std::make_unique<RowDrafts>();
  drafts->method = own;
  drafts->tokens.reserve(kMaxRowDrafts);
  if (!prediction.empty()) drafts->prediction.emplace(std::move(prediction));
  return drafts;
}

bool Drafter::may_try(const Sequence& sequence) {
  return sequence.drafts != nullptr && sequence.drafts->acceptance.offer(1).num_offered > 0;
}

bool Drafter::pays_to_wait(const Sequence& sequence) {
  if (!may_try(sequence)) return false;
  const int64_t num_without = sequence.drafts->num_without;
  return num_without < kPatience || num_without % kAskedEvery == 0;
}

/// Gives the row's new tokens to what drafts from them.
void Drafter::read(Sequence& sequence) {
  RowDrafts& drafts = *sequence.drafts;
  const std::span<const int32_t> tokens(sequence.tokens);
  const auto prompt = static_cast<size_t>(sequence.request.prompt_tokens);
  const size_t begin = std::exchange(drafts.num_read, tokens.size());
  if (drafts.prediction) drafts.prediction->append(tokens.subspan(std::max(begin, prompt)));
  if (drafts.method != DraftMethod::kSuffix) return;
  if (const SuffixMemory* const memory = memories_.find(drafts.key)) {
    memory->append(drafts.cursor, tokens.subspan(begin));
  }
}

/// From recent answers, where these know more than the row's own text.
void Drafter::propose_suffix(RowDrafts& drafts, int64_t max_drafts) {
  const SuffixMemory* const memory = memories_.find(drafts.key);
  if (memory == nullptr || memory->num_matched(drafts.cursor) < options_.min_ngram) return;
  std::array<int32_t, kMaxRowDrafts> found{};
  const size_t count =
      memory->propose(drafts.cursor, std::span(found).first(static_cast<size_t>(max_drafts)));
  drafts.tokens.assign(found.begin(), found.begin() + static_cast<ptrdiff_t>(count));
  drafts.source = DraftSource::kSuffix;
}

void Drafter::propose(Sequence& sequence, int64_t max_drafts) {
  RowDrafts& drafts = *sequence.drafts;
  if (drafts.num_read == 0) {  // its first drafts
    const auto average = averages_.find(drafts.key.adapters);
    if (average != averages_.end()) drafts.acceptance = Acceptance(average->second.rate());
  }
  read(sequence);
  if (drafts.prediction) {
    const auto found = drafts.prediction->propose(static_cast<size_t>(max_drafts));
    drafts.tokens.assign(found.begin(), found.end());
    drafts.source = DraftSource::kPrediction;
    if (!drafts.tokens.empty()) return;
  }
  if (has_model(drafts.method)) {
    drafts.tokens.assign(static_cast<size_t>(max_drafts), 0);
    drafts.source = model_source_;
    drafts.is_open = true;
    return;
  }
  if (drafts.method == DraftMethod::kSuffix) propose_suffix(drafts, max_drafts);
  if (!drafts.tokens.empty()) return;
  drafts.tokens.resize(static_cast<size_t>(max_drafts));
  const size_t count = propose_from_ngrams(sequence.tokens, drafts.tokens,
                                           {.min_ngram = options_.min_ngram,
                                            .max_ngram = options_.max_ngram,
                                            .match = NgramMatch::kLast});
  // Where the text ends before there are enough, it has that period: it goes on with what it has
  // drafted. "a b a b a": b, a, b, ...
  for (size_t i = count; count > 0 && i < drafts.tokens.size(); ++i) {
    drafts.tokens[i] = drafts.tokens[i - count];
  }
  if (count == 0) drafts.tokens.clear();
  drafts.source = DraftSource::kNgram;
}

void Drafter::fit(Sequences& running, int64_t num_prompt_tokens) {
  lengths_.rows.clear();
  offering_.clear();
  int64_t num_others = num_prompt_tokens;
  for (Sequence& sequence : running) {
    const int64_t num_drafts = sequence.num_drafts();
    if (num_drafts == 0) {
      num_others += sequence.decodes() && !sequence.is_paused ? 1 : 0;
      continue;
    }
    RowDrafts& drafts = *sequence.drafts;
    const int64_t num_certain = drafts.num_of_source == 0 ? num_drafts : 0;
    offering_.push_back(&drafts);
    lengths_.rows.push_back(
        drafts.acceptance.offer(static_cast<int>(num_drafts), static_cast<int>(num_certain)));
    lengths_.rows.back().is_made = !drafts.is_open;
  }
  if (offering_.empty()) return;
  lengths_.num_other_tokens = num_others;
  choose_draft_lengths(lengths_, costs_);
  for (size_t i = 0; i < offering_.size(); ++i) {
    offering_[i]->tokens.resize(static_cast<size_t>(lengths_.drafts[i]));
  }
}

void Drafter::count(const RowStep& row, int64_t num_accepted) noexcept {
  RowDrafts* const drafts = row.sequence->drafts.get();
  if (drafts == nullptr || row.num_logits == 0) return;
  drafts->num_without = row.num_drafts > 0 ? 0 : drafts->num_without + 1;
  const auto num_drafts = static_cast<int>(row.num_drafts);
  const int num_certain = drafts->num_of_source == 0 ? num_drafts : 0;
  drafts->acceptance.add_step(num_drafts, static_cast<int>(num_accepted), num_certain);
  if (num_drafts == 0) return;
  try {
    if (averages_.size() >= kMaxAverages) averages_.clear();
    averages_[drafts->key.adapters].add_step(num_drafts, static_cast<int>(num_accepted),
                                             num_certain);
  } catch (const std::bad_alloc&) {  // then it is not known
  }
}

void Drafter::remember(const Sequence& sequence) noexcept {
  const RowDrafts* const drafts = sequence.drafts.get();
  if (drafts == nullptr || drafts->method != DraftMethod::kSuffix || drafts->num_read == 0) return;
  const Completion& completion = sequence.answer.completion;
  if (completion.finish_reason == FinishReason::kError) return;
  try {
    std::vector<int32_t> answer = completion.token_ids;
    if (drafts->end_token >= 0) answer.push_back(drafts->end_token);
    memories_.add(drafts->key, answer);
  } catch (const std::bad_alloc&) {  // it is not remembered
  }
}

}  // namespace heddle
