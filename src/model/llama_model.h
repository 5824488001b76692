#pragma once

#include <functional>
#include <span>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"

#include "model/adapters/lora_tables.h"
#include "model/llama_config.h"
#include "model/llama_weights.h"

namespace heddle::model {

/// The tokens of one step, those of a sequence side by side, and where their keys and values go.
struct StepBatch {
  std::vector<int32_t> token_ids;      // [num_tokens]
  std::vector<int32_t> positions;      // [num_tokens]
  std::vector<int32_t> slot_ids;       // [num_tokens], kNoAdapter: the base model
  std::vector<int32_t> q_indptr;       // [num_seqs + 1]
  std::vector<int32_t> page_indptr;    // [num_seqs + 1]
  std::vector<int32_t> pages;          // [page_indptr[num_seqs]]
  std::vector<int32_t> last_page_len;  // [num_seqs], this step's tokens included
  std::vector<int32_t> logit_tokens;   // tokens whose logits are wanted

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  [[nodiscard]] int64_t num_seqs() const { return static_cast<int64_t>(last_page_len.size()); }
  void clear();
};

/// Activations of a step of up to max_tokens tokens, in f32.
class LlamaScratch {
 public:
  LlamaScratch(const LlamaConfig& config, int64_t max_tokens, int64_t max_logit_rows);

 private:
  friend class LlamaModel;
  int64_t max_tokens_, max_logit_rows_;
  std::vector<float> residual_, normed_, delta_, q_, k_, v_, attended_, gate_, up_;
  std::vector<float> cos_, sin_, last_;
};

/// The graph of a Llama model: h += attention(norm(h)), h += mlp(norm(h)) in every layer, then norm
/// and head.
class LlamaModel {
 public:
  LlamaModel(LlamaConfig config, LlamaWeights weights)
      : config_(std::move(config)), weights_(std::move(weights)) {}

  [[nodiscard]] const LlamaConfig& config() const { return config_; }
  [[nodiscard]] const LlamaWeights& weights() const { return weights_; }

  /// Runs all layers over the batch: stores its keys and values, and writes the logits [num
  /// logit_tokens, vocab_size] of the tokens that want them. `cache(layer)` gives the layer's part
  /// of the KV cache. A row's logits depend on its own sequence and adapter alone. The context's
  /// workspace holds lora_workspace_bytes. Adds the time spent in LoRA to *lora_seconds.
  void forward(const ExecContext& ctx, const StepBatch& batch, LlamaScratch& scratch,
               const std::function<PagedKv(int)>& cache, const LoraTables& lora, TensorView logits,
               double* lora_seconds) const;

  [[nodiscard]] size_t lora_workspace_bytes(Device device, int64_t max_tokens, int max_rank) const;

 private:
  struct Step;

  void attention(const Step& step, int layer_idx) const;
  void mlp(const Step& step, int layer_idx) const;

  LlamaConfig config_;
  LlamaWeights weights_;
};

}  // namespace heddle::model
