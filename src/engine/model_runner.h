#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "engine/kv_cache.h"
#include "engine/page_pool.h"
#include "engine/sequence.h"
#include "model/adapters/lora_tables.h"
#include "model/llama_model.h"

namespace heddle {

/// A model with all memory that its steps need: activations, KV cache, logits, threads.
class ModelRunner {
 public:
  struct Limits {
    int max_batch, num_threads, page_size, prefill_chunk;
    int64_t max_context;
  };

  ModelRunner(const files::GgufFile& file, const model::LlamaConfig& config, const Limits& limits);

  [[nodiscard]] const model::LlamaModel& model() const { return model_; }
  [[nodiscard]] model::LoraTables& adapters() { return adapters_; }
  [[nodiscard]] PagePool& pages() { return pages_; }
  [[nodiscard]] int64_t num_pages() const { return cache_.shape().num_pages; }
  [[nodiscard]] double lora_seconds() const { return lora_seconds_; }

  /// Runs the next num_tokens[i] tokens of each row (0: none) and advances their num_cached.
  /// Afterwards `logits()` has one row for each sequence that has no token left, in order. Rows
  /// must have been admitted, so that pages do not run out.
  void run(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens);
  [[nodiscard]] TensorView logits();

  /// Draws the next token of each of the rows whose logits the last run left; writes one token and
  /// log-probability each.
  void sample(std::span<Sequence* const> rows, std::span<int32_t> token_ids,
              std::span<float> logprobs);

 private:
  void add_to_batch(Sequence& row, int64_t num_tokens);
  ExecContext context();

  Limits limits_;
  ThreadPool threads_;
  model::LlamaModel model_;
  model::LoraTables adapters_;
  PagePool pages_;
  KvCache cache_;
  model::LlamaScratch scratch_;
  model::StepBatch batch_;
  std::unique_ptr<float[]>
      logits_;  // [max_batch, vocab_size]; not initialised, so unused rows take no memory
  std::unique_ptr<std::byte[]> workspace_;
  size_t workspace_bytes_ = 0;
  double lora_seconds_ = 0;
};

}  // namespace heddle
