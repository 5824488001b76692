// Speculation: which tokens the next step verifies, and what became of them.
#include <algorithm>
#include <exception>

#include "heddle/core/error.h"
#include "heddle/ops/speculation.h"

#include "engine/face/engine_state.h"
#include "engine/rows/scheduler.h"
#include "files/printable.h"

namespace heddle {
namespace {

/// A row with more entries of penalties and biases drafts nothing: each draft would copy them all.
constexpr int64_t kMaxDraftedEntries = 4096;

/// How many drafts the row may have: those that are tokens of its longest answer, but for the last,
/// which is drawn and never computed.
int64_t max_drafts_of(const Sequence& sequence) {
  const RowCache& cache = sequence.cache;
  const bool is_at_end =
      cache.num_pending == 0 && cache.num_cached + 1 == std::ssize(sequence.tokens);
  const bool waits = sequence.is_paused || cache.awaits_page || !sequence.adapters.next.empty();
  if (!is_at_end || waits || !sequence.decodes()) return 0;
  return std::clamp<int64_t>(sequence.request.max_tokens - 1 - std::ssize(sequence.tokens), 0,
                             kMaxRowDrafts);
}

/// Those that there are pages for: drafts park no other row.
void fit_to_pages(Sequence& sequence, int64_t page_size) {
  std::vector<int32_t>& drafts = sequence.drafts->tokens;
  ReservedPages& pages = sequence.cache.pages;
  const int64_t length = std::ssize(sequence.tokens), end = length + std::ssize(drafts);
  if (pages.reserve_to(std::max(pages_for(end, page_size), pages.num_reserved()))) return;
  drafts.resize(
      static_cast<size_t>(std::max<int64_t>(pages.num_reserved() * page_size - length, 0)));
}

/// What may be a token of the row: no more than max_drafts, and none from the first on that its
/// vocabulary does not have.
void cut(std::vector<int32_t>& drafts, int64_t max_drafts, int64_t num_tokens) {
  if (std::ssize(drafts) > max_drafts) drafts.resize(static_cast<size_t>(max_drafts));
  const auto is_none = [num_tokens](int32_t id) { return id < 0 || id >= num_tokens; };
  drafts.erase(std::ranges::find_if(drafts, is_none), drafts.end());
}

}  // namespace

/// Null: nothing is drafted for the row.
std::unique_ptr<RowDrafts> Engine::State::drafts_of(const Request& request) const {
  const std::string& own = options.speculation.method;
  const std::string& method = request.speculation.empty() ? own : request.speculation;
  HEDDLE_CHECK(is_draft_method(method), "speculation is ", files::quote(method),
               ", expected off, ngram or suffix");
  if (method == "off") return nullptr;
  HEDDLE_CHECK(own != "off", "speculation is ", method,
               ", but the engine has none (--speculate off)");
  auto drafts = std::make_unique<RowDrafts>();
  drafts->method = method == "ngram" ? DraftMethod::kNgram : DraftMethod::kSuffix;
  drafts->tokens.reserve(kMaxRowDrafts);
  return drafts;
}

bool Engine::State::may_draft(const Sequence& sequence) {
  const RowAdjustment* const adjustment = sequence.adjustment.get();
  return sequence.drafts != nullptr &&
         (adjustment == nullptr || adjustment->max_entries() <= kMaxDraftedEntries);
}

void Engine::State::draft(Sequence& sequence, int64_t max_drafts) {
  std::vector<int32_t>& drafts = sequence.drafts->tokens;
  if (hooks.draft) {
    hooks.draft(sequence.tokens, max_drafts, drafts);
  }
  cut(drafts, max_drafts, num_tokens_of(sequence.adapters.text()));
  const int64_t num_drafts = std::ssize(drafts);
  if (sequence.mask != nullptr) {
    sequence.mask->draft(sequence.answer.completion.token_ids, max_drafts, drafts);
  }
  sequence.drafts->num_of_source = std::min(num_drafts, std::ssize(drafts));
}

/// Before a step is scheduled. One that is launched while another is in flight has no drafts, so
/// that between two calls of Engine::step no keys are stored that may have to go.
void Engine::State::draft_tokens() noexcept {
  int64_t left = first_step->handle ? 0 : kMaxStepDrafts;
  for (Sequence& sequence : queue.running()) {
    if (sequence.drafts == nullptr) continue;
    std::vector<int32_t>& drafts = sequence.drafts->tokens;
    drafts.clear();
    const int64_t max_drafts = may_draft(sequence) ? std::min(left, max_drafts_of(sequence)) : 0;
    if (max_drafts == 0) continue;
    try {
      draft(sequence, max_drafts);
    } catch (const std::exception&) {
      drafts.clear();  // for lack of memory: the row goes on without
    }
    fit_to_pages(sequence, options.page_size);
    left -= std::ssize(drafts);
  }
}

/// Whether the next step has to wait for the tokens of the one in flight, since drafts may follow
/// them.
bool Engine::State::awaits_drawn() const { return std::ranges::any_of(queue.running(), may_draft); }

void Engine::State::count_drafts(const RowStep& row, int64_t num_accepted) {
  const RowDrafts& drafts = *row.sequence->drafts;
  Completion& completion = row.sequence->answer.completion;
  const auto count = [&](DraftCounts& counts, int64_t begin, int64_t end) {
    counts.drafted += std::max<int64_t>(end - begin, 0);
    counts.accepted +=
        std::clamp<int64_t>(num_accepted - begin, 0, std::max<int64_t>(end - begin, 0));
  };
  count(stats.drafts, 0, row.num_drafts);
  count(completion.drafts, 0, row.num_drafts);
  for (int64_t i = 0; i < row.num_drafts; ++i) {
    count(stats.draft_stats.by_place[static_cast<size_t>(i)], i, i + 1);
  }
  const int64_t of_source = std::min(drafts.num_of_source, row.num_drafts);
  const auto by_source = [&](DraftSource source) -> DraftCounts& {
    return stats.draft_stats.by_source[static_cast<size_t>(source)];
  };
  count(by_source(drafts.source), 0, of_source);
  count(by_source(DraftSource::kFormat), of_source, row.num_drafts);
  if (drafts.source == DraftSource::kPrediction) count(completion.prediction, 0, of_source);
}

const char* name(DraftSource source) {
  switch (source) {
    case DraftSource::kNgram: return "ngram";
    case DraftSource::kSuffix: return "suffix";
    case DraftSource::kPrediction: return "prediction";
    case DraftSource::kFormat: return "format";
  }
  return "?";
}

}  // namespace heddle
