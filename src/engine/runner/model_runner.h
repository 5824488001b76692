#pragma once

#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "heddle/ops/sampling.h"

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/page_pool.h"
#include "engine/rows/sequence.h"
#include "engine/runner/adjusted_rows.h"
#include "engine/runner/device_adapters.h"
#include "engine/runner/engine_context.h"
#include "engine/runner/step_clock.h"
#include "engine/runner/step_results.h"
#include "model/decoder/decoder.h"
#include "model/source/model_files.h"

namespace heddle {

/// A model with all memory that its steps need: activations, KV cache, logits, threads. The steps
/// compute in memory of one device. The host writes what they are about, once a step, and reads the
/// tokens that they draw.
class ModelRunner {
 public:
  struct Limits {
    int64_t max_batch;
    int num_threads, page_size;
    int64_t prefill_chunk, max_context;
    int64_t kv_memory;                // 0: choose_num_pages
    std::optional<DType> kv_dtype{};  // absent: the activations'
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
  /// Makes room for steps with the row's list of adapters. Where it throws, nothing has changed.
  void reserve_for(const Sequence& row);
  [[nodiscard]] PagePool& pages() { return pages_; }
  [[nodiscard]] const PagePool& pages() const { return pages_; }
  [[nodiscard]] int64_t page_bytes() const { return kv_shape_.page_bytes(); }
  [[nodiscard]] DType kv_dtype() const { return kv_shape_.dtype; }
  [[nodiscard]] double lora_seconds() const { return lora_seconds_; }
  /// That the host has waited for what steps draw.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  /// Of the steps that were launched and collected.
  [[nodiscard]] const StepClock& clock() const { return clock_; }
  /// CUDA graphs that were recorded, and how long that took.
  [[nodiscard]] int64_t num_graphs() const { return num_graphs_; }
  [[nodiscard]] double graph_seconds() const { return graph_seconds_; }

  /// To be called before a row's share of a step is planned: finds out where an adapter with
  /// invocation tokens begins to act, and a row that has become longer than
  /// DecoderConfig::recompute_above is taken in anew.
  void prepare(Sequence& row) const;
  /// Of prompts that are scored a step takes in few tokens: lowers num_tokens so that it does.
  void limit_scored(std::span<Sequence* const> rows, std::span<int64_t> num_tokens) const;
  /// Runs the next num_tokens[i] tokens of each row (0: none) and advances their num_cached.
  /// Afterwards there is one row of logits for each sequence that has no token left, in order.
  /// Pages for these tokens must have been set aside. Asks for no memory. Where it throws, all rows
  /// are as far as they were.
  void run(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens);
  /// Tokens that rows of the slot may have, and logits that they get: more or fewer than the base
  /// model has where the adapter has a vocabulary of its own.
  [[nodiscard]] int64_t num_input_tokens(int32_t slot) const;
  [[nodiscard]] int64_t num_logits(int32_t slot) const;
  /// A copy of all logits that the last run left, row after row, each with num_logits of its slot.
  [[nodiscard]] std::vector<float> copy_logits() const;

  /// Room for what rows ask of their logits: so many entries of RowAdjustment in all. Where it
  /// throws there is as much as before.
  void reserve_adjustments(int64_t num_entries);
  /// Draws the next token of each of the rows whose logits the last run left; writes one token and
  /// log-probability each. Rows that ask for the most likely tokens are told them. Asks for no
  /// memory.
  void sample(std::span<Sequence* const> rows, std::span<int32_t> token_ids,
              std::span<float> logprobs);

  /// Whether `launch` may run steps of these rows: on a GPU, where nothing but the token itself
  /// passes from one step of a row to the next.
  [[nodiscard]] bool can_run_ahead(std::span<Sequence* const> rows) const;
  /// Asks the device for run and sample of the rows that then have no token left, and waits for
  /// nothing; `drawing` are these, in order. Their tokens are pending from here on, and a second
  /// step may be launched before the first one is collected. Where every row has one drawn token,
  /// the calls are a graph from the second time on. Throws as `run`.
  void launch(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens,
              std::span<Sequence* const> drawing);
  /// Waits for what was launched first and was not collected; one token and log-probability for
  /// each row that drew. The rows' pending tokens stay as they are.
  void collect(std::span<int32_t> token_ids, std::span<float> logprobs);

 private:
  /// Sequences, padded, whether any has an adapter, and whether one of these has affines.
  using GraphKey = std::tuple<int64_t, bool, bool>;
  /// The columns of a SamplingTable, [max_batch] each.
  struct SamplingColumns {
    std::vector<float> temperature, top_p, min_p;
    std::vector<int32_t> top_k;
    std::vector<int64_t> seed, step;
  };

  void reserve_for(const AdapterData& adapter);
  void reserve_workspace(int max_rank);
  [[nodiscard]] model::StepLimits largest_step() const;
  void reserve_host_memory();
  void fill_batch(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens);
  void add_to_batch(Sequence& row, int64_t num_tokens);
  void add_logits(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens);
  void add_pairs(const Sequence& row, int64_t num_tokens);
  void score(Sequence& row, int64_t logits_row, int64_t position);
  [[nodiscard]] bool has_vocabulary(const Sequence& row) const;
  void pad_batch(int64_t num_seqs);
  void compute(const model::StepInputs& inputs, const SamplingTable& table, int64_t num_drawn);
  void compute_recorded(const model::StepInputs& inputs, const SamplingTable& table,
                        int64_t num_drawn);
  void add_top_logprobs(Sequence& row, int64_t logits_row);
  SamplingTable add_sampling(StagedArrays& arrays, std::span<Sequence* const> rows,
                             int64_t num_rows);
  [[nodiscard]] TensorView logits() const;
  [[nodiscard]] int32_t slot_of_logits(int64_t row) const;

  Limits limits_;
  EngineContext context_;
  model::Decoder model_;
  DeviceAdapters adapters_;
  KvCache::Shape kv_shape_;
  PagePool pages_;
  KvCache cache_;
  model::DecoderScratch scratch_;
  model::StepBatch batch_;
  DeviceTensor logits_;  // [max_batch, num_logits of the widest so far] f32
  /// A token of a prompt whose logits score the one behind it.
  struct Scored {
    Sequence* row;
    int64_t position;
    int32_t token, seq;  // among the step's
  };
  std::vector<int32_t> seqs_;   // [rows]: the sequence of each in the batch, -1: none
  std::vector<Scored> scored_;  // of the step; their logits lie behind those of the rows that draw
  AdjustedRows adjusted_;
  SamplingColumns sampling_columns_;
  int64_t max_pairs_ = 0;  // adapters of a list that there is room for
  StagedArrays sampling_;  // the table of `sample`, of steps that were not launched
  StepResults results_;    // what it draws
  /// Of steps of drawn tokens; absent where one has run and was not recorded. Of tables of this
  /// version.
  std::map<GraphKey, std::optional<DeviceGraph>> graphs_;
  int64_t graphs_version_ = 0;
  DeviceTensor scored_logprob_;  // [1]
  DeviceTensor top_ids_, tops_;  // [1, kMaxTopLogprobs] i32 and f32
  StepClock clock_;
  double lora_seconds_ = 0, wait_seconds_ = 0;
  int64_t num_graphs_ = 0;
  double graph_seconds_ = 0;
};

}  // namespace heddle
