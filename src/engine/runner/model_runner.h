#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/page_pool.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/device_adapters.h"
#include "engine/runner/engine_context.h"
#include "engine/runner/sampler.h"
#include "engine/runner/step_clock.h"
#include "engine/runner/step_graphs.h"
#include "engine/runner/value_rows.h"
#include "model/decoder/decoder.h"
#include "model/source/model_files.h"

namespace heddle {

/// A step that was launched and is not collected yet. Until then the schedule stays where and as it
/// is, except for StepSchedule::forget.
struct StepHandle {
  const StepSchedule* schedule;
  uint64_t number = 0;  // counted from 1
};

/// A model with all memory that its steps need: activations, KV cache, logits, threads. A step
/// computes in memory of one device: `launch` stages its inputs and launches its forward pass,
/// `draw` launches what draws its tokens, `collect` waits for these.
///
///   launch n      draw n    launch n + 1  collect n   draw n + 1    where steps overlap
///   | forward n | draw n |  | forward n + 1         | draw n + 1 |  on the device
///
/// So the host has the whole forward pass for what changes logits by the tokens of step n.
class ModelRunner {
 public:
  struct Limits {
    int64_t max_batch;
    int num_threads, page_size;
    int64_t prefill_chunk, max_context;
    int64_t kv_memory;                // 0: choose_num_pages
    std::optional<DType> kv_dtype{};  // absent: the activations'
    int64_t max_drafts = 0;           // that a step verifies
    /// For tests: on the CPU, too, steps overlap and each draft is a sequence, as on a GPU; on a
    /// GPU drafts of a row are a bundle however few its keys are.
    bool steps_as_on_gpu = false;
  };

  ModelRunner(Device device, const model::ModelFiles& files, const Limits& limits,
              const model::LoadOptions& load = {});

  [[nodiscard]] const model::Decoder& model() const { return model_; }
  [[nodiscard]] const ExecContext& exec() const { return context_.exec(); }
  [[nodiscard]] DeviceAdapters& adapters() { return adapters_; }
  [[nodiscard]] const DeviceAdapters& adapters() const { return adapters_; }
  /// DeviceAdapters::add, after reserving what steps with the adapter need. Where it throws, the
  /// adapter is no longer on the device.
  void add_adapter(AdapterData& adapter);
  /// Makes room for steps with this list of adapters. Where it throws, nothing has changed.
  void reserve_for(const RowAdapters& adapters);
  [[nodiscard]] PagePool& pages() { return pages_; }
  [[nodiscard]] const PagePool& pages() const { return pages_; }
  /// A page of the cache, in memory of the device.
  [[nodiscard]] std::span<std::byte> bytes_of(PageId page) const { return cache_.bytes_of(page); }
  /// Copies a page onto another, in the order of the steps; false: the device has failed.
  [[nodiscard]] bool copy_page(PageId from, PageId to) const noexcept;
  [[nodiscard]] int64_t page_bytes() const { return kv_shape_.page_bytes(); }
  [[nodiscard]] DType kv_dtype() const { return kv_shape_.dtype; }
  [[nodiscard]] double lora_seconds() const { return lora_seconds_; }
  /// That the host has waited for what steps draw.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  /// Of the steps, where they overlap.
  [[nodiscard]] const StepClock& clock() const { return clock_; }
  [[nodiscard]] const StepGraphs& graphs() const { return graphs_; }

  /// Tokens that requests with the slot may draw: more or fewer than the base model has where the
  /// adapter has a head of its own.
  [[nodiscard]] int64_t num_logits(int32_t slot) const;
  /// Room for penalties and biases: so many entries of RowAdjustment in all. Where it throws there
  /// is as much as before.
  void reserve_adjustments(int64_t num_entries);
  /// Room for the masks of so many requests, as above.
  void reserve_masks(int64_t num_rows);

  /// Keeps what enters these layers of the model, ascending, of all tokens of a step. Before the
  /// first step.
  void tap(std::span<const int64_t> layers);
  /// [tokens of the step that was launched last, taps * hidden_size]: see DecoderScratch::tapped.
  [[nodiscard]] TensorView tapped() const { return scratch_.tapped(batch_.num_tokens()); }
  /// Of any step.
  [[nodiscard]] int64_t max_step_tokens() const { return largest_step().num_tokens; }

  /// Gives a row that starts a place for what it collects. Where it throws, nothing has changed.
  void give_place(RowValues& row);

  /// Whether a step may be launched while one other is in flight: on a GPU, but for models whose
  /// sequences are computed anew at some length.
  [[nodiscard]] bool overlaps() const;
  /// Stages a step and launches its forward pass, and advances its sequences: their tokens count
  /// as cached, what they draw as pending. Their pages must be reserved, and the step before was
  /// drawn. Allocates nothing, except for a graph. On a GPU it returns before the device is done; a
  /// step that only decodes is a graph from the second time on, where steps overlap. Where it
  /// throws, all sequences are as they were.
  [[nodiscard]] StepHandle launch(const StepSchedule& step);
  /// Launches what draws the tokens of the step that was launched last. Where it adjusts_logits,
  /// all steps before it were collected, and their tokens added to the answers.
  void draw(const StepHandle& handle);
  /// Waits for the step that was launched first, and was drawn. Returns a token and a
  /// log-probability for each of its logits, valid until the second next draw; they are not pending
  /// any more. Stores the log-probabilities that its requests have reported, and what rows that
  /// give values have collected.
  [[nodiscard]] StepTokens collect(const StepHandle& handle);
  /// A copy of all logits of the last step, in the order of the schedule, each row with num_logits
  /// of its slot.
  [[nodiscard]] std::vector<float> copy_logits() const;

  // For what drafts while no step is in flight:

  /// The step whose hidden states there are, and the one that was collected last.
  [[nodiscard]] uint64_t last_launched() const { return num_launched_; }
  [[nodiscard]] uint64_t last_collected() const { return last_collected_; }
  /// [any, hidden_size]: what the model's head read in the step that was launched last, by rows of
  /// its logits.
  [[nodiscard]] const TensorView& logit_hidden() const { return scratch_.logit_hidden(); }
  /// [max_batch + max_drafts and more, the widest vocabulary] f32: room, in which the logits of the
  /// last step lie.
  [[nodiscard]] const TensorView& logits_room() const { return logits_.view(); }
  /// Makes the workspace of `exec` at least as large. Graphs keep the one that they have.
  void reserve_workspace_bytes(size_t num_bytes);

 private:
  [[nodiscard]] bool is_on_gpu() const { return context_.exec().device.type != DeviceType::kCpu; }
  void reserve_for(const AdapterData& adapter);
  void reserve_workspace(int max_rank);
  [[nodiscard]] model::StepLimits largest_step() const;
  [[nodiscard]] bool bundles_pay(const StepSchedule& step) const;
  [[nodiscard]] int64_t bundle_of(int64_t kv_len, int64_t num_queries) const;
  [[nodiscard]] bool has_vocabularies(const StepSchedule& step) const;
  void compute(const model::Decoder::Pass& pass);
  void compute_recorded(const model::Decoder::Pass& pass, bool has_vocabularies);
  void embed(const model::Decoder::Pass& pass);
  [[nodiscard]] TensorView logits() const;
  [[nodiscard]] int64_t width_of_logits(int64_t row) const;

  Limits limits_;
  EngineContext context_;
  model::Decoder model_;
  DeviceAdapters adapters_;
  KvCache::Shape kv_shape_;
  int64_t num_pages_;
  PagePool pages_;
  KvCache cache_;
  model::DecoderScratch scratch_;
  model::StepBatch batch_;
  DeviceTensor logits_;  // [max_batch + max_drafts + kMaxScored, widest vocabulary so far] f32
  Sampler sampler_;
  ValueRows values_;
  int64_t max_pairs_ = 0;      // adapters of a list that there is room for
  std::set<int64_t> windows_;  // of the layers, as AttentionOptions::window_left
  StepGraphs graphs_;
  StepClock clock_;
  double lora_seconds_ = 0, wait_seconds_ = 0;
  uint64_t num_launched_ = 0, last_collected_ = 0;
};

}  // namespace heddle
