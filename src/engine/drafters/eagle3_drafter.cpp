#include "engine/drafters/eagle3_drafter.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <utility>

#include "heddle/core/cuda_context.h"

#include "engine/options/room_for.h"
#include "engine/rows/row_queue.h"
#include "engine/rows/scheduler.h"
#include "model/eagle3/eagle3_config.h"
#include "model/eagle3/eagle3_weights.h"

namespace heddle {
namespace {

constexpr const char* kLess =
    "a smaller max_batch (--max-batch), max_context (--max-context) or "
    "prefill_chunk (--prefill-chunk)";

/// Positions of a row that drafts are made for.
int64_t longest_row(const Eagle3Drafter::Limits& limits) {
  return limits.max_context + kMaxRowDrafts;
}

int64_t most_drafting(const Eagle3Drafter::Limits& limits) {
  return std::min<int64_t>(limits.max_batch, kMaxStepDrafts);
}

/// As many as the model's cache has, and for each row one that begins elsewhere than a page of that
/// does, and one for drafts; never more than all rows can fill.
int64_t num_pages(const ModelRunner& runner, const Eagle3Drafter::Limits& limits) {
  const int64_t each = pages_for(longest_row(limits), limits.page_size);
  return std::min(limits.max_batch * each, runner.pages().num_pages() + 2 * limits.max_batch);
}

/// Bytes of the largest pass, and of all rounds of drafts.
size_t staged_bytes(const ModelRunner& runner, const Eagle3Drafter::Limits& limits,
                    int64_t num_pages) {
  const auto bytes = [](int64_t n) { return StagedArrays::bytes_for<int32_t>(n); };
  const int64_t each = pages_for(longest_row(limits), limits.page_size);
  const size_t pass =
      3 * bytes(runner.max_step_tokens()) + bytes(num_pages) + 3 * bytes(limits.max_batch + 1);
  // All rounds together have a page list for each draft at most.
  const int64_t listed = std::min(kMaxStepDrafts * each, kMaxRowDrafts * num_pages);
  const size_t rounds = size_t{kMaxRowDrafts} * 5 * bytes(kMaxStepDrafts + 1) +
                        size_t{kMaxRowDrafts} * bytes(1) + bytes(listed);
  return std::max(pass, rounds);
}

model::Eagle3Model load(ModelRunner& runner, const std::string& folder,
                        const Eagle3Drafter::Limits& limits, std::vector<std::string>& notes) {
  const ExecContext& ctx = runner.exec();
  const ScopedDevice on_device(ctx.device);
  const model::Decoder& target = runner.model();
  model::Eagle3Config config = model::read_eagle3_config(folder, target.config());
  for (const std::string& key : config.unread) {
    notes.push_back(folder + "/config.json: nothing reads " + key);
  }
  return room_for("the drafter", kLess, [&] {
    model::Eagle3Weights weights = model::load_eagle3_weights(ctx, folder, config, target.config(),
                                                              target.weights().activations);
    const int64_t max_drawn = most_drafting(limits);
    return model::Eagle3Model(ctx.device, std::move(config), std::move(weights),
                              target.weights().embedding,
                              std::max(runner.max_step_tokens(), max_drawn), max_drawn);
  });
}

KvCache::Shape cache_shape(const model::Eagle3Model& model, int page_size) {
  return {.num_layers = 1,
          .num_kv_heads = static_cast<int>(model.config().num_kv_heads),
          .page_size = page_size,
          .head_dim = static_cast<int>(model.config().head_dim),
          .dtype = model.activations()};
}

}  // namespace

/// Pages, and the rows that have some.
struct Eagle3Drafter::Shared {
  explicit Shared(int64_t num_pages) : pool(num_pages) {}

  PagePool pool;
  std::vector<Context*> contexts{};
};

/// What the layer has seen of a row: keys of positions [begin, end), from slot 0 of its pages on.
struct Eagle3Drafter::Context : DrafterState {
  explicit Context(std::shared_ptr<Shared> of_all) : shared(std::move(of_all)) {
    shared->contexts.push_back(this);
  }
  ~Context() override { std::erase(shared->contexts, this); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void restart(int64_t position) noexcept {
    pages = {};
    begin = end = position;
    output = -1;
  }

  std::shared_ptr<Shared> shared;  // before the pages, which are of it
  ReservedPages pages{};
  int64_t begin = 0, end = 0;
  int64_t last_step = 0;  // that had the row
  int64_t output = -1;    // row of outputs_ that position end - 1 has
  int64_t pass = 0;       // which wrote it
};

void Eagle3Drafter::Batch::clear() {
  for (auto* const array : {&token_ids, &rows, &positions, &pages, &last_page_len}) array->clear();
  q_indptr.assign(1, 0);
  page_indptr.assign(1, 0);
}

/// The pages of a row up to position `end`.
void Eagle3Drafter::Batch::add_sequence(const Context& context, int64_t end, int64_t page_size) {
  const int64_t length = end - context.begin;
  const auto count = static_cast<size_t>(pages_for(length, page_size));
  for (const PageId page : context.pages.ids().first(count)) {
    pages.push_back(static_cast<int32_t>(page));
  }
  page_indptr.push_back(static_cast<int32_t>(pages.size()));
  last_page_len.push_back(static_cast<int32_t>((length - 1) % page_size + 1));
}

Eagle3Drafter::Eagle3Drafter(ModelRunner& runner, const std::string& folder, const Limits& limits)
    : runner_(runner),
      limits_(limits),
      model_(load(runner, folder, limits, notes_)),
      shared_(std::make_shared<Shared>(num_pages(runner, limits))),
      cache_(room_for("the KV cache of the drafter", kLess,
                      [&] {
                        return KvCache(runner.exec().device, cache_shape(model_, limits.page_size),
                                       shared_->pool.num_pages());
                      })),
      staged_(runner.exec().device, staged_bytes(runner, limits, shared_->pool.num_pages())) {
  const Device device = runner.exec().device;
  const ScopedDevice on_device(device);
  runner.tap(model_.config().layers);
  runner.reserve_workspace_bytes(model_.workspace_bytes(device));
  room_for("the hidden states of the drafter", kLess, [&] {
    const int64_t width = model_.config().hidden_size;
    outputs_ = DeviceTensor(device, DType::kFloat32, {runner.max_step_tokens(), width});
    hidden_ = DeviceTensor(device, DType::kFloat32, {kMaxStepDrafts, width});
    drawn_ = DeviceTensor(device, DType::kInt32, {int64_t{kMaxRowDrafts} * kMaxStepDrafts});
  });
  in_pass_.reserve(static_cast<size_t>(limits.max_batch));
  drafting_.reserve(static_cast<size_t>(limits.max_batch));
  rounds_.reserve(kMaxRowDrafts);
}

/// That of the row, made where it has none.
Eagle3Drafter::Context* Eagle3Drafter::context_of(Sequence& sequence) {
  RowDrafts* const drafts = sequence.drafts.get();
  if (drafts == nullptr || drafts->method != DraftMethod::kEagle3) return nullptr;
  if (drafts->state == nullptr) drafts->state = std::make_unique<Context>(shared_);
  return static_cast<Context*>(drafts->state.get());
}

/// Pages up to position `end`, taken where they lack from rows that the last step did not have:
/// parked and paused ones begin anew.
bool Eagle3Drafter::grow(Context& context, int64_t end) {
  const int64_t count = pages_for(end - context.begin, limits_.page_size);
  const int64_t most = pages_for(longest_row(limits_), limits_.page_size);
  const auto reserve = [&] {
    if (!context.pages.is_empty()) return context.pages.reserve_to(count);
    std::optional<ReservedPages> pages = shared_->pool.reserve(count, {}, most);
    if (!pages) return false;
    context.pages = std::move(*pages);
    return true;
  };
  bool has_room = reserve();
  for (Context* const other : shared_->contexts) {
    if (has_room) break;
    if (other == &context || other->last_step == num_passes_ || other->pages.is_empty()) continue;
    other->restart(other->end);
    has_room = reserve();
  }
  if (has_room) context.pages.grow_to(count);
  return has_room;
}

/// The positions whose hidden states the step has, and whose next tokens are known now. Those of
/// rejected drafts have no next token.
void Eagle3Drafter::add_settled(const RowStep& row) {
  if (!row.is_alive()) return;
  const std::vector<int32_t>& tokens = row.sequence->tokens;
  Context* const context = context_of(*row.sequence);
  if (context == nullptr) return;
  const int64_t limit = std::min(row.first + row.count, std::ssize(tokens) - 1);
  if (row.first > context->end) context->restart(row.first);  // hidden states are missing
  for (int64_t p = limit; p-- > context->end;) {
    if (tokens[static_cast<size_t>(p + 1)] < model_.config().vocab_size) continue;
    context->restart(p + 1);  // a token of an adapter's own vocabulary
    break;
  }
  const int64_t first = context->end;
  if (first >= limit) return;
  if (!grow(*context, limit)) return context->restart(limit);
  in_pass_.push_back(context);
  for (int64_t p = first; p < limit; ++p) {
    batch_.token_ids.push_back(tokens[static_cast<size_t>(p + 1)]);
    batch_.rows.push_back(static_cast<int32_t>(row.tokens_begin + p - row.first));
    batch_.positions.push_back(static_cast<int32_t>(p));
  }
  batch_.q_indptr.push_back(static_cast<int32_t>(batch_.token_ids.size()));
  batch_.add_sequence(*context, limit, limits_.page_size);
  context->end = limit;
  context->output = std::ssize(batch_.token_ids) - 1;
  context->pass = num_passes_;
}

void Eagle3Drafter::computed(const StepSchedule& step) noexcept {
  ++num_passes_;
  batch_.clear();
  in_pass_.clear();
  try {
    for (const RowStep& row : step.rows) {
      Context* const context = row.is_alive() ? context_of(*row.sequence) : nullptr;
      if (context != nullptr) context->last_step = num_passes_;
    }
    for (const RowStep& row : step.rows) add_settled(row);
    if (!in_pass_.empty()) run_over_settled();
  } catch (const std::exception&) {  // for lack of memory, or of the device: it begins anew
    for (Context* const context : in_pass_) context->restart(context->end);
  }
}

void Eagle3Drafter::run_over_settled() {
  const ExecContext& ctx = runner_.exec();
  const ScopedDevice on_device(ctx.device);
  staged_.clear();
  const ConstTensorView rows = staged_.add(batch_.rows);
  const model::Eagle3Model::Tokens tokens{
      .token_ids = staged_.add(batch_.token_ids),
      .positions = staged_.add(batch_.positions),
      .q_indptr = staged_.add(batch_.q_indptr),
      .pages = {.page_indptr = staged_.add(batch_.page_indptr),
                .pages = staged_.add(batch_.pages),
                .last_page_len = staged_.add(batch_.last_page_len)},
      .is_one_each = batch_.token_ids.size() == in_pass_.size()};
  staged_.copy(ctx);
  const TensorView hidden = outputs_.rows(std::ssize(batch_.token_ids));
  model_.fuse(ctx, runner_.tapped());
  model_.take_fused(ctx, hidden, rows);
  model_.run(ctx, hidden, tokens, std::get<PagedKv>(cache_.layers().front()));
}

/// Those whose last output there still is. A row that was paused in between has none: it drafts
/// after its next step.
void Eagle3Drafter::choose_rows(std::span<const Row> rows) {
  drafting_.clear();
  for (const auto& [sequence, num_drafts] : rows) {
    Context* const context = context_of(*sequence);
    const int64_t last = std::ssize(sequence->tokens) - 1;
    if (context == nullptr || context->end != last) continue;
    if (context->output < 0 || context->pass != num_passes_) continue;
    if (std::ssize(drafting_) == most_drafting(limits_)) break;
    const bool has_room = grow(*context, last + num_drafts - 1);
    drafting_.push_back({sequence->drafts.get(), context, has_room ? num_drafts : 1});
  }
  std::ranges::sort(drafting_, std::greater<>(), &Drafting::num_drafts);
}

/// Round 0 draws from the last outputs. Round i > 0 runs over draft i - 1 of those rows that have
/// more of them.
void Eagle3Drafter::stage_round(int64_t round) {
  batch_.clear();
  for (const auto& [drafts, context, num_drafts] : drafting_) {
    if (num_drafts <= round) break;
    const int64_t position = context->end + round - 1;
    batch_.positions.push_back(static_cast<int32_t>(position));
    batch_.q_indptr.push_back(static_cast<int32_t>(batch_.positions.size()));
    batch_.add_sequence(*context, position + 1, limits_.page_size);
  }
  const auto before = (round - 1) * kMaxStepDrafts;
  rounds_.push_back({.token_ids = drawn_.view().narrow(0, before, std::ssize(batch_.positions)),
                     .positions = staged_.add(batch_.positions),
                     .q_indptr = staged_.add(batch_.q_indptr),
                     .pages = {.page_indptr = staged_.add(batch_.page_indptr),
                               .pages = staged_.add(batch_.pages),
                               .last_page_len = staged_.add(batch_.last_page_len)},
                     .is_one_each = true});
}

void Eagle3Drafter::run_rounds() {
  const ExecContext& ctx = runner_.exec();
  const int64_t num_rounds = drafting_.front().num_drafts;
  staged_.clear();
  rounds_.clear();
  batch_.clear();
  for (const Drafting& row : drafting_) {
    batch_.rows.push_back(static_cast<int32_t>(row.context->output));
  }
  const ConstTensorView last = staged_.add(batch_.rows);
  for (int64_t round = 1; round < num_rounds; ++round) stage_round(round);
  staged_.copy(ctx);
  const TensorView hidden = hidden_.rows(std::ssize(drafting_));
  embedding(ctx, hidden, last, outputs_.view());  // a plain choice of rows
  const auto& cache = std::get<PagedKv>(cache_.layers().front());
  for (int64_t round = 0; round < num_rounds; ++round) {
    const int64_t count =
        round == 0 ? hidden.size(0) : rounds_[size_t(round - 1)].positions.size(0);
    const TensorView rows = hidden.narrow(0, 0, count);
    if (round > 0) model_.run(ctx, rows, rounds_[size_t(round - 1)], cache);
    model_.draw(ctx, drawn_.view().narrow(0, round * kMaxStepDrafts, count), rows);
  }
}

void Eagle3Drafter::propose(std::span<const Row> rows) {
  choose_rows(rows);
  if (drafting_.empty()) return;
  const ExecContext& ctx = runner_.exec();
  const ScopedDevice on_device(ctx.device);
  run_rounds();
  const auto num_rounds = drafting_.front().num_drafts;
  ids_.resize(static_cast<size_t>(num_rounds * kMaxStepDrafts));
  copy_to_host(ctx, std::span(ids_), drawn_.view().narrow(0, 0, std::ssize(ids_)));
  for (size_t i = 0; i < drafting_.size(); ++i) {
    for (int64_t round = 0; round < drafting_[i].num_drafts; ++round) {
      drafting_[i].drafts->tokens.push_back(ids_[static_cast<size_t>(round * kMaxStepDrafts) + i]);
    }
  }
}

/// Of a row that begins: what attention reads of longer ones is left out. Each is the shortest of
/// some. The pass over settled positions is no part: it is made whether the row drafts or not.
DraftingCost Eagle3Drafter::measured_cost() {
  constexpr int kSamples = 4, kMore = 4;
  Sequences one = RowQueue::make_row(-1);
  Sequence& row = one.front();
  row.tokens = {0, 0};
  row.drafts = std::make_unique<RowDrafts>();
  row.drafts->method = DraftMethod::kEagle3;
  StepSchedule step;
  step.add(row, 1);
  computed(step);
  const auto seconds_of = [&](int64_t num_drafts) {
    const Row asked{&row, num_drafts};
    double shortest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kSamples; ++i) {
      row.drafts->tokens.clear();
      const auto begin = std::chrono::steady_clock::now();
      propose({&asked, 1});
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      shortest = std::min(shortest, seconds.count());
    }
    return shortest;
  };
  const double more = seconds_of(1 + kMore), first = seconds_of(1);
  const double each = std::max((more - first) / kMore, 0.0);
  return {.begin = std::max(first - each, 0.0), .each = each};
}

}  // namespace heddle
