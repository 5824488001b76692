// Speculation: which tokens the next step verifies, and what became of them.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "heddle/core/error.h"

#include "engine/drafters/draft_model.h"
#include "engine/drafters/eagle3_drafter.h"
#include "engine/drafters/medusa_drafter.h"
#include "engine/face/engine_state.h"
#include "engine/rows/scheduler.h"
#include "files/printable.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

/// A row with more entries of penalties and biases drafts nothing: each draft would copy them all.
constexpr int64_t kMaxDraftedEntries = 4096;

/// Tokens per row that make up for steps that do not overlap.
constexpr double kOverlapGain = 0.05;

/// Whether what drafts for the row reads hidden states of each step, which the next one writes
/// over.
bool reads_hidden_states(const Sequence& sequence) {
  return sequence.drafts != nullptr && sequence.drafts->method == DraftMethod::kEagle3 &&
         !sequence.is_paused;
}

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

/// Of the prompts in the next step.
int64_t num_prompt_tokens(const Sequences& running, int64_t prefill_chunk) {
  int64_t count = 0;
  for (const Sequence& sequence : running) {
    const bool waits = sequence.is_paused || sequence.cache.awaits_page || sequence.decodes();
    if (!waits) count += sequence.cache.prefill_length - sequence.cache.num_cached;
  }
  return std::min(count, prefill_chunk);
}

/// Seconds of a step that computes so many tokens of the rows, each with the drafts that it has.
double measured_step(ModelRunner& runner, Sequences& rows) {
  StepSchedule step;
  for (Sequence& row : rows) {
    row.cache.num_cached = 0;
    step.add(row, 1, row.num_drafts());
  }
  const auto begin = std::chrono::steady_clock::now();
  const StepHandle handle = runner.launch(step);
  runner.draw(handle);
  (void)runner.collect(handle);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return seconds.count();
}

}  // namespace

std::unique_ptr<ModelDrafter> Engine::State::make_draft_model() {
  ModelRunner::Limits limits = limits_of(options, hooks.steps_as_on_gpu);
  limits.kv_memory = options.speculation.memory;
  model::LoadOptions load = load_options_of(options);
  load.on_load = nullptr;  // which reports the progress of the model
  try {
    auto made =
        std::make_unique<DraftModel>(DraftModel::Options{.path = options.speculation.draft_model,
                                                         .device = device_of(options),
                                                         .limits = limits,
                                                         .load = load,
                                                         .strict = options.strict,
                                                         .on_warning = options.on_warning},
                                     files->path(), *text_of_base.tokenizer);
    options.speculation.memory = made->kv_bytes();
    return made;
  } catch (const Error& error) {
    throw_error(error.code(), "draft_model (--draft-model): ", error.what());
  }
}

/// What drafts with a model of its own; null where the method has none.
std::unique_ptr<ModelDrafter> Engine::State::make_model_drafter() {
  switch (*draft_method_of(options.speculation.method)) {
    case DraftMethod::kModel: return make_draft_model();
    case DraftMethod::kHeads: return make_medusa_drafter();
    case DraftMethod::kEagle3:
      return std::make_unique<Eagle3Drafter>(
          runner, options.speculation.draft_model,
          Eagle3Drafter::Limits{.max_batch = options.max_batch,
                                .max_context = options.max_context,
                                .page_size = options.page_size});
    case DraftMethod::kOff:
    case DraftMethod::kNgram:
    case DraftMethod::kSuffix: break;
  }
  return nullptr;
}

std::unique_ptr<ModelDrafter> Engine::State::make_medusa_drafter() {
  const std::string folder = model::find_adapter_path(options.speculation.draft_model);
  auto heads = std::make_unique<MedusaDrafter>(runner, folder);
  std::vector<std::string> warnings = heads->warnings();
  if (!files->names().may_be(heads->base_model())) {
    warnings.push_back(folder + ": its heads were made for " +
                       files::printable(heads->base_model()) + ", the model is " + files->path());
  }
  for (const std::string& warning : warnings) {
    HEDDLE_CHECK(!options.strict, warning);
    if (options.on_warning) options.on_warning(warning);
  }
  return heads;
}

/// The cost of steps of 1, 2, 3, 4, 6, 8, 12, ... tokens, each the shortest of some, of rows that
/// begin: what attention reads of longer ones is left out.
StepCosts Engine::State::measured_costs() {
  constexpr double kMaxSeconds = 3, kSlow = 0.2;
  constexpr int kSamples = 4, kMoreSamples = 10;
  const int64_t page_size = options.page_size;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<StepCost> measured;
  const int64_t most = options.max_batch + kMaxStepDrafts;
  for (const int64_t count : {1, 2, 4, 8, 16, 32, 64, 3, 6, 12, 24, 48, 96, 128}) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const bool is_enough = measured.size() >= 4 && spent.count() > kMaxSeconds;
    constexpr int64_t kEach = kMaxRowDrafts + 1;
    const int64_t num_rows = ceil_div(count, kEach);
    const bool fits = count <= most && num_rows <= options.max_batch &&
                      count - num_rows <= kMaxStepDrafts && kEach <= options.max_context;
    if (is_enough || !fits) continue;
    Sequences rows;
    for (int64_t i = 0, left = count; i < num_rows; ++i, left -= kEach) {
      rows.splice(rows.end(), RowQueue::make_row(-1));
      Sequence& row = rows.back();
      const int64_t own = std::min(left, kEach);
      row.tokens = {0};
      row.cache.prefill_length = 0;
      row.drafts = std::make_unique<RowDrafts>();
      row.drafts->tokens.assign(static_cast<size_t>(own - 1), 0);
      auto pages = runner.pages().reserve(pages_for(own, page_size));
      if (!pages) return StepCosts(measured);
      row.cache.pages = std::move(*pages);
    }
    double shortest = measured_step(runner, rows);
    // Most choices are between one token and two, so a disturbance there matters most.
    const int num_samples = count <= 2 ? kMoreSamples : kSamples;
    for (int i = 1; i < num_samples && (i < 2 || shortest < kSlow); ++i) {
      shortest = std::min(shortest, measured_step(runner, rows));
    }
    measured.push_back({count, shortest});
  }
  return StepCosts(measured);
}

bool Engine::State::may_draft(const Sequence& sequence) {
  const RowAdjustment* const adjustment = sequence.adjustment.get();
  return sequence.drafts != nullptr &&
         (adjustment == nullptr || adjustment->max_entries() <= kMaxDraftedEntries);
}

void Engine::State::draft(Sequence& sequence, int64_t max_drafts) {
  RowDrafts& drafts = *sequence.drafts;
  if (hooks.draft) {
    hooks.draft(sequence.tokens, max_drafts, drafts.tokens);
  } else {
    if (drafts.num_read == 0) {
      drafts.key = {.salt = sequence.request.salt, .adapters = adapters.content(sequence)};
    }
    drafter.propose(sequence, max_drafts);
    if (drafts.is_open) {
      const int64_t most = model_drafter->max_drafts(sequence);
      if (most < std::ssize(drafts.tokens)) drafts.tokens.resize(static_cast<size_t>(most));
      drafts.is_open = most > 0;
    }
  }
  if (drafts.is_open && sequence.mask != nullptr) {  // what cannot fail needs no model
    std::vector<int32_t> open = std::exchange(drafts.tokens, {});
    drafts.tokens.reserve(kMaxRowDrafts);
    sequence.mask->draft(sequence.answer.completion.token_ids, max_drafts, drafts.tokens);
    drafts.num_of_source = 0;
    if (!drafts.tokens.empty()) {
      drafts.is_open = false;
      return;
    }
    drafts.tokens = std::move(open);
  }
  if (!drafts.is_open) return bound_drafts(sequence, max_drafts);
  drafts.num_of_source = std::ssize(drafts.tokens);
}

/// Of the row's drafts, those that its vocabulary and its format allow; after them what the format
/// forces.
void Engine::State::bound_drafts(Sequence& sequence, int64_t max_drafts) {
  RowDrafts& drafts = *sequence.drafts;
  cut(drafts.tokens, max_drafts, num_tokens_of(sequence.adapters.text()));
  const int64_t num_drafts = std::ssize(drafts.tokens);
  if (sequence.mask != nullptr) {
    sequence.mask->draft(sequence.answer.completion.token_ids, max_drafts, drafts.tokens);
  }
  drafts.num_of_source = std::min(num_drafts, std::ssize(drafts.tokens));
}

/// Has the model draft for the rows that wait for it, as many tokens as fit has left them.
void Engine::State::draft_with_model() noexcept {
  model_rows.clear();
  for (Sequence& sequence : queue.running()) {
    RowDrafts* const drafts = sequence.drafts.get();
    if (drafts == nullptr || !drafts->is_open || drafts->tokens.empty()) continue;
    model_rows.push_back({&sequence, std::ssize(drafts->tokens)});
    drafts->tokens.clear();
  }
  if (model_rows.empty()) return;
  try {
    model_drafter->propose(model_rows);
    for (const auto& [sequence, num_drafts] : model_rows) bound_drafts(*sequence, num_drafts);
  } catch (const std::exception&) {
    for (const auto& row : model_rows) row.sequence->drafts->tokens.clear();
  }
  for (const auto& row : model_rows) row.sequence->drafts->is_open = false;
}

/// Before a step is scheduled. One that is launched while another is in flight has no drafts, so
/// that between two calls of Engine::step no keys are stored that may have to go.
void Engine::State::draft_tokens() noexcept {
  if (!drafter.is_on()) return;
  const bool is_alone = !first_step->handle;
  int64_t left = kMaxStepDrafts;
  for (Sequence& sequence : queue.running()) {
    if (sequence.drafts == nullptr) continue;
    std::vector<int32_t>& drafts = sequence.drafts->tokens;
    drafts.clear();
    sequence.drafts->is_open = false;
    const bool may = is_alone && may_draft(sequence) && (hooks.draft || Drafter::may_try(sequence));
    const int64_t max_drafts =
        may ? std::min<int64_t>(max_drafts_of(sequence), options.speculation.max_drafts) : 0;
    if (max_drafts == 0) continue;
    try {
      draft(sequence, max_drafts);
    } catch (const std::exception&) {
      drafts.clear();  // for lack of memory: the row goes on without
      sequence.drafts->is_open = false;
    }
    fit_to_pages(sequence, options.page_size);
    if (!hooks.draft) continue;
    drafts.resize(static_cast<size_t>(std::min(left, std::ssize(drafts))));
    left -= std::ssize(drafts);
  }
  if (!is_alone || hooks.draft) return;
  drafter.fit(queue.running(), num_prompt_tokens(queue.running(), options.prefill_chunk));
  if (model_drafter != nullptr) draft_with_model();
}

/// Whether the next step waits for the tokens of the one in flight: always where that has drafts,
/// since it is not known yet how many tokens its rows get; and where drafts may follow its tokens.
/// The two then do not overlap, which is worth it where enough drafts may be right. Always, too,
/// where a row's drafts are made of the hidden states of each step.
bool Engine::State::awaits_drawn() const {
  if (!drafter.is_on()) return false;
  double num_expected = 0, num_rows = 0;
  for (const Sequence& sequence : queue.running()) {
    if (sequence.num_drafts() > 0) return true;
    if (reads_hidden_states(sequence)) return true;
    num_rows += sequence.decodes() ? 1 : 0;
    if (!may_draft(sequence)) continue;
    if (hooks.draft) return true;
    if (Drafter::pays_to_wait(sequence)) num_expected += sequence.drafts->acceptance.rate();
  }
  return num_expected > kOverlapGain * num_rows;
}

void Engine::State::count_drafts(const RowStep& row, int64_t num_accepted) {
  drafter.count(row, num_accepted);
  if (row.num_drafts == 0) return;
  const RowDrafts& drafts = *row.sequence->drafts;
  Completion& completion = row.sequence->answer.completion;
  const auto count = [&](DraftCounts& counts, int64_t begin, int64_t end) {
    const int64_t size = end - begin;
    counts.drafted += size;
    counts.accepted += std::clamp<int64_t>(num_accepted - begin, 0, size);
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
    case DraftSource::kModel: return "model";
    case DraftSource::kHeads: return "heads";
    case DraftSource::kEagle3: return "eagle3";
  }
  return "?";
}

}  // namespace heddle
