#include "engine/drafters/medusa_drafter.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "heddle/core/cuda_context.h"

#include "engine/options/room_for.h"

namespace heddle {
MedusaDrafter::MedusaDrafter(ModelRunner& runner, const std::string& folder)
    : runner_(runner),
      batch_(runner.exec().device, runner.model().config(), runner.model().weights(),
             kMaxStepDrafts) {
  const ExecContext& ctx = runner.exec();
  const DType activations = runner.model().weights().activations;
  runner.adapters().use_heads();
  rows_.reserve(static_cast<size_t>(kMaxStepDrafts));
  runner.reserve_workspace_bytes(batch_.workspace_bytes(ctx.device));
  if (folder.empty()) return;
  model::MedusaFiles files(folder, runner.model().config());
  std::optional<DType> rounded_to;
  if (ctx.device.type != DeviceType::kCpu) rounded_to = activations;
  files.load(rounded_to);
  warnings_ = files.warnings();
  base_model_ = files.config().base_model;
  const ScopedDevice on_device(ctx.device);
  heads_ = room_for("Medusa heads", "a smaller kv_memory (--kv-memory)", [&] {
    return std::make_unique<const model::MedusaHeads>(ctx, files, activations);
  });
}

/// Null: its hidden state is not there any more.
const MedusaDrafter::LastHidden* MedusaDrafter::last_of(const Sequence& sequence) const {
  const auto* const last = static_cast<const LastHidden*>(sequence.drafts->state.get());
  const bool is_there = last != nullptr && last->step == runner_.last_launched() &&
                        last->num_tokens == sequence.tokens.size();
  return is_there ? last : nullptr;
}

/// Those of its adapter, or of the first of several that has heads: such a row drafts with the
/// model's own head, to which the sum of theirs is not added.
MedusaDrafter::RowHeads MedusaDrafter::heads_of(const RowAdapters& adapters) const {
  const DeviceAdapters& device = std::as_const(runner_).adapters();
  if (adapters.uses.empty()) {
    const model::MedusaHeads* const own = device.heads(adapters.slot);
    return {own == nullptr ? heads_.get() : own, device.tables().vocabularies.head(adapters.slot)};
  }
  for (const model::AdapterUse& use : adapters.uses) {
    if (const model::MedusaHeads* const own = device.heads(use.slot)) return {own};
  }
  return {heads_.get()};
}

int64_t MedusaDrafter::max_drafts(const Sequence& sequence) const {
  const model::MedusaHeads* const heads = heads_of(sequence.adapters).heads;
  return heads == nullptr || last_of(sequence) == nullptr ? 0 : heads->num_heads();
}

void MedusaDrafter::propose(std::span<const Row> rows) {
  rows_.clear();
  for (const auto& [sequence, num_drafts] : rows) {
    const LastHidden* const last = last_of(*sequence);
    const auto [heads, head] = heads_of(sequence->adapters);
    if (heads == nullptr || last == nullptr) continue;
    rows_.push_back({.heads = heads,
                     .head = head,
                     .hidden = last->row,
                     .num_drafts = std::min(num_drafts, heads->num_heads()),
                     .drafts = &sequence->drafts->tokens});
  }
  const ScopedDevice on_device(runner_.exec().device);
  batch_.draft(runner_.exec(), rows_, runner_.logit_hidden(), runner_.logits_room());
}

void MedusaDrafter::take(const RowStep& row, int64_t num_taken) noexcept {
  RowDrafts& drafts = *row.sequence->drafts;
  if (drafts.state == nullptr) drafts.state.reset(new (std::nothrow) LastHidden);
  auto* const last = static_cast<LastHidden*>(drafts.state.get());
  if (last == nullptr) return;  // for lack of memory it drafts nothing
  last->step = runner_.last_collected();
  last->row = static_cast<int32_t>(row.logits_begin + num_taken - 1);
  last->num_tokens = row.sequence->tokens.size();
}

/// The shortest of some, of one row.
double MedusaDrafter::seconds_for(const model::MedusaHeads& heads, int64_t num_drafts) {
  constexpr int kSamples = 4;
  double shortest = std::numeric_limits<double>::infinity();
  std::vector<int32_t> drafts;
  for (int i = 0; i < kSamples; ++i) {
    model::MedusaRow row{.heads = &heads, .num_drafts = num_drafts, .drafts = &drafts};
    const auto begin = std::chrono::steady_clock::now();
    batch_.draft(runner_.exec(), {&row, 1}, runner_.logit_hidden(), runner_.logits_room());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    shortest = std::min(shortest, seconds.count());
  }
  return shortest;
}

/// Of the model's own heads; where it has none, of two, as adapters may have them.
DraftingCost MedusaDrafter::measured_cost() {
  const ScopedDevice on_device(runner_.exec().device);
  const model::DecoderConfig& config = runner_.model().config();
  std::unique_ptr<const model::MedusaHeads> made;
  if (heads_ == nullptr) {
    made = std::make_unique<const model::MedusaHeads>(runner_.exec(), 2, config.hidden_size,
                                                      runner_.model().weights().activations);
  }
  const model::MedusaHeads& heads = made == nullptr ? *heads_ : *made;
  const double of_one = seconds_for(heads, 1);
  const int64_t most = std::min<int64_t>(heads.num_heads(), kMaxRowDrafts);
  if (most == 1) return {.begin = of_one};
  const double more = std::max(seconds_for(heads, most) - of_one, 0.0);
  const double each = more / static_cast<double>(most - 1);
  return {.begin = std::max(of_one - each, 0.0), .each = each};
}

}  // namespace heddle
