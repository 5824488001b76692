#include "engine/drafters/draft_model.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <sstream>
#include <utility>

#include "heddle/core/error.h"

#include "core/math.h"
#include "engine/drafters/draft_vocabulary.h"
#include "engine/options/available_memory.h"
#include "engine/rows/row_queue.h"

namespace heddle {
namespace {

constexpr int64_t kKvShare = 4, kAdapterShare = 8;  // of what is available

/// Makes the model's limits those of the draft model, whose rows are the same as far as its context
/// goes, and returns them.
const ModelRunner::Limits& fit(ModelRunner::Limits& limits, const DraftModel::Options& options,
                               const model::DecoderConfig& config) {
  limits.max_context = std::min(limits.max_context, config.context_length);
  // Keys of longer sequences would have to be computed anew.
  if (config.recompute_above() > 0) {
    limits.max_context = std::min(limits.max_context, config.recompute_above());
  }
  limits.max_drafts = kMaxStepDrafts;
  if (limits.kv_memory == 0) limits.kv_memory = available_memory(options.device) / kKvShare;
  // The element type is that of its own activations unless it is smaller.
  const bool is_any = options.device.type == DeviceType::kCpu;
  if (!is_any && limits.kv_dtype != DType::kFloat8E4M3) limits.kv_dtype = std::nullopt;
  return limits;
}

DraftAdapters::Limits adapter_limits_of(const DraftModel::Options& options) {
  DraftAdapters::Limits limits;
  limits.max_bytes = available_memory(options.device) / kAdapterShare;
  limits.strict = options.strict;
  limits.on_warning = options.on_warning;
  return limits;
}

std::unique_ptr<const model::ModelFiles> open_files(const DraftModel::Options& options,
                                                    const std::string& model_path,
                                                    const tokenizer::Tokenizer& of_model) {
  auto files = model::open_model(options.path);
  check_same_tokens(of_model, model_path, files->tokenizer(), files->path());
  return files;
}

}  // namespace

/// The sequence of the draft model that follows a row.
struct DraftModel::Mirror final : DrafterState {
  explicit Mirror(DraftModel& owner) : of(&owner), list(RowQueue::make_row(-1)) {
    row().drafts = std::make_unique<RowDrafts>();
    row().drafts->tokens.reserve(kMaxRowDrafts);
    of->mirrors_.push_back(this);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror() override {
    if (of != nullptr) std::erase(of->mirrors_, this);
  }

  [[nodiscard]] Sequence& row() { return list.front(); }
  /// Gives up what was computed.
  void restart() noexcept { row().cache = {}; }
  /// And its tokens.
  void forget() noexcept {
    restart();
    row().tokens.clear();
    num_followed = 0;
  }

  DraftModel* of;  // null: it is gone
  Sequences list;
  size_t num_followed = 0;  // of the row's tokens: the sequence begins with them
  int64_t adapter = 0;      // DraftAdapters::Found::id, with which its keys were computed
  int64_t used_in = 0;      // the last proposal of its row
};

DraftModel::DraftModel(const Options& options, const std::string& model_path,
                       const tokenizer::Tokenizer& of_model)
    : on_warning_(options.on_warning),
      files_(open_files(options, model_path, of_model)),
      limits_(options.limits),
      runner_(options.device, *files_, fit(limits_, options, files_->config()), options.load),
      adapters_(runner_, *files_, adapter_limits_of(options)) {
  const auto max_rows = static_cast<size_t>(limits_.max_batch);
  work_.reserve(max_rows);
  for (StepSchedule& step : steps_) step.rows.reserve(max_rows);
  files_->check_unchanged();
}

/// Rows may live on, without pages.
DraftModel::~DraftModel() {
  for (Mirror* const mirror : mirrors_) {
    mirror->restart();
    mirror->of = nullptr;
  }
}

void DraftModel::describe(ModelInfo& info) const {
  const std::string& path = files_->path();
  for (const std::string& warning : files_->warnings()) info.warnings.push_back(warning);
  for (const std::string& setting : files_->unread_settings()) {
    info.warnings.push_back(files_->settings_path() + ": " + setting +
                            " is a setting that heddle does not know");
  }
  std::ostringstream note;
  note.precision(3);
  note << path << " drafts, with " << kv_bytes() << " bytes for keys and values of rows of up to "
       << limits_.max_context << " tokens";
  if (cost_.each > 0) note << ": a draft takes " << 1e3 * cost_.each << " ms";
  info.notes.push_back(note.str());
}

/// A row's mirror, brought up to the row's tokens; nothing where it cannot draft.
std::optional<DraftModel::Work> DraftModel::follow(const Row& given) {
  const Sequence& target = *given.sequence;
  std::unique_ptr<DrafterState>& state = target.drafts->state;
  if (state == nullptr) state = std::make_unique<Mirror>(*this);
  Mirror& mirror = static_cast<Mirror&>(*state);
  mirror.used_in = num_proposals_;
  const auto adapter = adapters_.find(target.adapters);
  if (!adapter) return std::nullopt;
  if (std::exchange(mirror.adapter, adapter->id) != adapter->id) mirror.forget();
  Sequence& row = mirror.row();
  row.adapters.slot = adapter->slot;
  row.adapters.active_from = target.adapters.active_from;

  // Tokens of a row are only ever added, so those that were followed are still there.
  const std::vector<int32_t>& tokens = target.tokens;
  size_t same = std::min(mirror.num_followed, tokens.size());
  const size_t known = std::min(row.tokens.size(), tokens.size());
  while (same < known && row.tokens[same] == tokens[same]) ++same;
  const auto length = std::ssize(tokens);
  const int64_t num_drafts = std::min(given.num_drafts, limits_.max_context + 1 - length);
  const std::span<const int32_t> added = std::span(tokens).subspan(same);
  const auto is_foreign = [&](int32_t id) { return id < 0 || id >= adapter->num_tokens; };
  if (num_drafts < 1 || std::ranges::any_of(added, is_foreign)) {
    mirror.restart();
    return std::nullopt;
  }
  row.tokens.resize(same);
  row.tokens.insert(row.tokens.end(), added.begin(), added.end());
  mirror.num_followed = tokens.size();
  RowCache& cache = row.cache;
  // The last token gives the first draft, so it is computed in any case.
  cache.num_cached = std::min({cache.num_cached, static_cast<int64_t>(same), length - 1});
  if (!reserve(mirror, length + num_drafts - 1)) return std::nullopt;
  return Work{.row = given.sequence,
              .mirror = &mirror,
              .num_drafts = num_drafts,
              .num_lacking = length - cache.num_cached};
}

/// Pages for so many tokens. Rows that do not draft now give theirs up, the one that has not for
/// longest first; where that is not enough the row gives up its own.
bool DraftModel::reserve(Mirror& mirror, int64_t num_tokens) {
  RowCache& cache = mirror.row().cache;
  const int64_t num_pages =
      std::max(pages_for(num_tokens, limits_.page_size), cache.pages.num_reserved());
  const auto has = [&] {
    if (!cache.pages.is_empty()) return cache.pages.reserve_to(num_pages);
    auto pages =
        runner_.pages().reserve(num_pages, {}, pages_for(limits_.max_context, limits_.page_size));
    if (pages) cache.pages = std::move(*pages);
    return pages.has_value();
  };
  while (!has()) {
    Mirror* oldest = nullptr;
    for (Mirror* const other : mirrors_) {
      const bool may_go = other->used_in != num_proposals_ && !other->row().cache.pages.is_empty();
      if (may_go && (oldest == nullptr || other->used_in < oldest->used_in)) oldest = other;
    }
    if (oldest == nullptr) {
      mirror.restart();
      return false;
    }
    oldest->restart();
  }
  return true;
}

void DraftModel::propose(std::span<const Row> rows) {
  if (has_failed_) return;
  ++num_proposals_;
  adapters_.begin();
  work_.clear();
  // Marked first, so that none of them gives up its pages for another.
  for (const Row& row : rows) {
    if (DrafterState* const state = row.sequence->drafts->state.get()) {
      static_cast<Mirror*>(state)->used_in = num_proposals_;
    }
  }
  for (const Row& row : rows) {
    if (const std::optional<Work> work = follow(row)) work_.push_back(*work);
  }
  if (work_.empty()) return;
  try {
    compute();
  } catch (...) {
    recover();
    throw;
  }
}

/// The first step: of each mirror what it lacks. On a GPU a few tokens take the path of drawn ones,
/// as the drafts that a step verifies do, so that the step can be a graph.
void DraftModel::begin_step(StepSchedule& step) {
  step.clear();
  std::ranges::sort(work_, {}, &Work::num_lacking);
  int64_t chunk = limits_.prefill_chunk;
  int64_t num_split = runner_.overlaps() ? kMaxStepDrafts : 0;
  for (Work& work : work_) {
    Sequence& row = work.mirror->row();
    const int64_t length = std::ssize(row.tokens), num_more = work.num_lacking - 1;
    row.drafts->tokens.clear();
    if (num_more <= std::min<int64_t>(num_split, kMaxRowDrafts)) {
      num_split -= num_more;
      row.cache.prefill_length = 0;
      row.drafts->tokens.assign(row.tokens.end() - num_more, row.tokens.end());
      row.tokens.resize(static_cast<size_t>(length - num_more));
      step.add(row, 1, num_more);
      continue;
    }
    const int64_t count = 1 + std::min(num_more, chunk);
    chunk -= count - 1;
    row.cache.prefill_length = length;
    if (count < work.num_lacking) work.num_drafts = 0;
    step.add(row, count);
  }
}

/// A step for each place of the drafts. Where steps overlap, the tokens of one stay on the device
/// for the next.
void DraftModel::compute() {
  for (int64_t place = 0;; ++place) {
    StepSchedule& step = steps_[static_cast<size_t>(place) % steps_.size()];
    if (place == 0) {
      begin_step(step);
    } else {
      step.clear();
      for (const Work& work : work_) {
        if (work.num_drafts > place) step.add(work.mirror->row(), 1);
      }
    }
    if (step.rows.empty()) break;
    const StepHandle handle = runner_.launch(step);
    runner_.draw(handle);
    if (in_flight_) collect();
    in_flight_ = {handle, place};
    if (!runner_.overlaps()) collect();
  }
  if (in_flight_) collect();
}

/// Where it throws the device has failed: no step is computed any more.
StepTokens DraftModel::collected(const StepHandle& handle) {
  try {
    return runner_.collect(handle);
  } catch (const std::exception& failure) {
    has_failed_ = true;
    const std::string what = failure.what();
    if (on_warning_) on_warning_(files_->path() + " drafts nothing any more: " + what);
    throw;
  }
}

void DraftModel::collect() {
  const auto [handle, place] = *std::exchange(in_flight_, std::nullopt);
  const StepTokens tokens = collected(handle);
  auto next = handle.schedule->rows.begin();
  for (const Work& work : work_) {
    if (place > 0 && work.num_drafts <= place) continue;
    const RowStep& step = *next++;
    if (step.num_logits == 0) continue;
    Sequence& row = work.mirror->row();
    const std::span<const int32_t> computed = step.drafts();
    row.tokens.insert(row.tokens.end(), computed.begin(), computed.end());
    const int32_t token = tokens.ids[static_cast<size_t>(step.logits_begin + step.num_logits - 1)];
    row.tokens.push_back(token);
    work.row->drafts->tokens.push_back(token);
  }
}

/// After a failure nothing is in flight, and the mirrors begin anew.
void DraftModel::recover() noexcept {
  try {
    if (in_flight_) (void)collected(std::exchange(in_flight_, std::nullopt)->handle);
  } catch (const std::exception&) {  // which was reported
  }
  for (const Work& work : work_) work.mirror->forget();
}

double DraftModel::measured_step(Sequence& row, int64_t num_tokens) {
  const auto begin = std::chrono::steady_clock::now();
  row.cache.num_cached = 0;
  row.tokens.assign(static_cast<size_t>(num_tokens), 0);
  row.cache.prefill_length = num_tokens == 1 ? 0 : num_tokens;
  StepSchedule& step = steps_.front();
  step.clear();
  step.add(row, num_tokens);
  const StepHandle handle = runner_.launch(step);
  runner_.draw(handle);
  (void)runner_.collect(handle);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of steps of one row: `each` of a single token, `begin` what a second one adds, as after drafts
/// that were all right.
DraftingCost DraftModel::measured_cost() {
  constexpr int kSamples = 5;
  Sequences list = RowQueue::make_row(-1);
  Sequence& row = list.front();
  auto pages = runner_.pages().reserve(pages_for(2, limits_.page_size));
  if (!pages) return {};
  row.cache.pages = std::move(*pages);
  const auto shortest = [&](int64_t num_tokens) {
    double seconds = measured_step(row, num_tokens);
    for (int i = 1; i < kSamples; ++i) {
      seconds = std::min(seconds, measured_step(row, num_tokens));
    }
    return seconds;
  };
  const double one = shortest(1);
  cost_ = {.begin = std::max(shortest(2) - one, 0.0), .each = one};
  return cost_;
}

}  // namespace heddle
