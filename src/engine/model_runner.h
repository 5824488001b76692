#pragma once

#include <span>
#include <vector>

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/engine_context.h"
#include "engine/kv_cache.h"
#include "engine/page_pool.h"
#include "engine/sequence.h"
#include "model/adapters/lora_tables.h"
#include "model/llama_model.h"

namespace heddle {

/// A model with all memory that its steps need: activations, KV cache, logits, threads. The steps
/// compute in memory of one device. The host writes what they are about, once a step, and reads the
/// tokens that they draw.
class ModelRunner {
 public:
  struct Limits {
    int max_batch, num_threads, page_size, prefill_chunk;
    int64_t max_context;
  };

  ModelRunner(Device device, const files::GgufFile& file, const model::LlamaConfig& config,
              const Limits& limits);

  [[nodiscard]] const model::LlamaModel& model() const { return model_; }
  /// Loads an adapter that fits the model; returns its slot.
  int32_t add_adapter(const model::PeftAdapter& adapter) {
    return adapters_.add(context_.exec(), adapter);
  }
  [[nodiscard]] PagePool& pages() { return pages_; }
  [[nodiscard]] int64_t num_pages() const { return cache_.shape().num_pages; }
  [[nodiscard]] double lora_seconds() const { return lora_seconds_; }

  /// Runs the next num_tokens[i] tokens of each row (0: none) and advances their num_cached.
  /// Afterwards there is one row of logits for each sequence that has no token left, in order.
  /// Rows must have been admitted, so that pages do not run out.
  void run(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens);
  /// A copy of all logits that the last run left, [num_rows, vocab_size].
  [[nodiscard]] std::vector<float> copy_logits() const;

  /// Draws the next token of each of the rows whose logits the last run left; writes one token and
  /// log-probability each.
  void sample(std::span<Sequence* const> rows, std::span<int32_t> token_ids,
              std::span<float> logprobs);

 private:
  void add_to_batch(Sequence& row, int64_t num_tokens);
  [[nodiscard]] TensorView logits() const;

  Limits limits_;
  EngineContext context_;
  model::LlamaModel model_;
  model::LoraTables adapters_;
  PagePool pages_;
  KvCache cache_;
  model::LlamaScratch scratch_;
  model::StepBatch batch_;
  DeviceTensor logits_;                // [max_batch, vocab_size] f32
  StagedArrays sampling_;              // the table of `sample`
  DeviceTensor token_ids_, logprobs_;  // [max_batch] i32 and f32: what it draws
  double lora_seconds_ = 0;
};

}  // namespace heddle
