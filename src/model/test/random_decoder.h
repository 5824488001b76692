#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <vector>

#include "heddle/core/context.h"

#include "compare.h"
#include "core/device_tensor.h"
#include "core/math.h"
#include "model/decoder/layer_cache.h"
#include "model/decoder/step_batch.h"
#include "model/test/llama_model_ref.h"
#include "model/weights/decoder_weights.h"
#include "random.h"

namespace heddle::model {

/// A random model in both forms, on one device. Weights of traits that it lacks are drawn all the
/// same, so that a trait alone is what differs between two models of one seed.
struct RandomDecoder {
  explicit RandomDecoder(const DecoderConfig& config, Device device = {}) : ctx{.device = device} {
    ref.config = config;
    ref.embedding = matrix(config.vocab_size, config.hidden_size, 1.0f, weights.embedding);
    ref.output = matrix(config.vocab_size, config.hidden_size, 0.5f, weights.output);
    ref.output_norm = norm(config.hidden_size, true, weights.output_norm);
    const BlockShape block = config.block();
    for (int64_t i = 0; i < config.num_layers; ++i) {
      ref::Layer r;
      DecoderLayer layer;
      r.attention_norm = norm(config.hidden_size, config.norm_before, layer.mixer.norm);
      r.mlp_norm = norm(config.hidden_size, config.norm_before, layer.mlp.norm);
      r.attention_post_norm = norm(config.hidden_size, config.norm_after, layer.mixer.post_norm);
      r.mlp_post_norm = norm(config.hidden_size, config.norm_after, layer.mlp.post_norm);
      const auto qk = [&](int64_t heads) {
        return config.head_dim * (config.qk_norm == QkNorm::kAllHeads ? heads : 1);
      };
      const bool has_qk = config.qk_norm != QkNorm::kNone;
      r.q_norm = norm(qk(config.num_q_heads), has_qk, layer.mixer.q_norm);
      r.k_norm = norm(qk(config.num_kv_heads), has_qk, layer.mixer.k_norm);
      for (int p = 0; p < llama::kNumSlices; ++p) {
        const auto [in, out] = block.slice(p).dims;
        SliceWeights& slice = layer.slices.emplace_back();
        r.projection[p] = matrix(out, in, 0.3f, slice.matrix);
        r.bias[p] = bias(out, block.site(block.site_of(p)).has_bias, slice.bias);
      }
      ref.layers.push_back(std::move(r));
      weights.layers.push_back(std::move(layer));
    }
  }

  ExecContext ctx;
  ref::Llama ref;
  DecoderWeights weights;

 private:
  ref::Values matrix(int64_t out, int64_t in, float scale, Matrix& packed) {
    const auto values = testing::random_normal<float>(static_cast<size_t>(out * in), scale);
    const size_t size = packed_bytes(WeightType::kF32, out, in);
    weights.buffers.push_back(allocate_zeroed(ctx.device, size));
    pack_rows(ctx, {weights.buffers.back().get(), size}, WeightType::kF32, out, in, 0, out,
              std::as_bytes(std::span(values)));
    packed = Matrix(PackedWeight{WeightType::kF32, out, in, weights.buffers.back().get()});
    return testing::to_double(values);
  }
  [[nodiscard]] ref::Values norm(int64_t width, bool exists, DeviceTensor& tensor) const {
    auto values = testing::random_normal<float>(static_cast<size_t>(width), 0.4f);
    for (float& v : values) v += 1.0f;
    if (exists) tensor = DeviceTensor(ctx, std::span<const float>(values));
    return testing::to_double(values);
  }
  [[nodiscard]] ref::Values bias(int64_t width, bool exists, DeviceTensor& tensor) const {
    const auto values = testing::random_normal<float>(static_cast<size_t>(width), 0.5f);
    if (!exists) return {};
    tensor = DeviceTensor(ctx, std::span<const float>(values));
    return testing::to_double(values);
  }
};

/// The memory of a paged cache and the pages of sequences in it, in a random order.
class RandomCache {
 public:
  RandomCache(Device device, const DecoderConfig& config, int num_seqs, int page_size)
      : page_size_(page_size), pages_per_seq_(ceil_div(config.context_length, page_size)) {
    const int64_t num_pages = num_seqs * pages_per_seq_;
    const std::initializer_list<int64_t> shape = {num_pages, config.num_kv_heads, page_size,
                                                  config.head_dim};
    for (int64_t i = 0; i < config.num_layers; ++i) {
      const TensorView k = halves_.emplace_back(device, DType::kFloat32, shape).view();
      const TensorView v = halves_.emplace_back(device, DType::kFloat32, shape).view();
      layers_.emplace_back(PagedKv::from_pool(k, v));
    }
    for (int64_t i = 0; i < num_pages; ++i) order_.push_back(static_cast<int32_t>(i));
    std::shuffle(order_.begin(), order_.end(), testing::rng());
  }

  [[nodiscard]] std::span<const LayerCache> layers() const { return layers_; }

  void add_sequence(StepBatch& batch, int seq, int64_t kv_len) const {
    const int64_t num_pages = ceil_div(kv_len, page_size_);
    for (int64_t i = 0; i < num_pages; ++i) {
      batch.pages.push_back(order_[static_cast<size_t>(seq * pages_per_seq_ + i)]);
    }
    batch.page_indptr.push_back(static_cast<int32_t>(batch.pages.size()));
    batch.last_page_len.push_back(static_cast<int32_t>((kv_len - 1) % page_size_ + 1));
  }

 private:
  int page_size_;
  int64_t pages_per_seq_;
  std::vector<DeviceTensor> halves_;  // K and V of each layer
  std::vector<LayerCache> layers_;
  std::vector<int32_t> order_;
};

}  // namespace heddle::model
