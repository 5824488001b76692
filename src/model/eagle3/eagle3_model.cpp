#include "model/eagle3/eagle3_model.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "heddle/ops/activation.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/norm.h"
#include "heddle/ops/sampling.h"

namespace heddle::model {
namespace {

constexpr int kMaxProducts = 3;      // that share what they read: q, k and v
constexpr int64_t kDecodeRows = 64;  // on a GPU by the path of few rows

/// [num_tokens, num_heads * head_dim] as [num_tokens, num_heads, head_dim].
TensorView as_heads(const TensorView& t, int64_t head_dim) {
  return {t.raw(), t.dtype(), t.device(), {t.size(0), t.size(1) / head_dim, head_dim}};
}

/// to = hidden, rounded where to is of fewer bits.
void copy_rows(const ExecContext& ctx, const TensorView& to, const TensorView& hidden) {
  if (to.dtype() != DType::kFloat32) return round_to(ctx, to, hidden);
  for (int64_t t = 0; t < to.size(0); ++t) {  // f32 is of the CPU
    std::copy_n(hidden.data<float>() + t * hidden.stride(0), to.size(1),
                to.data<float>() + t * to.stride(0));
  }
}

}  // namespace

Eagle3Model::Eagle3Model(Device device, Eagle3Config config, Eagle3Weights weights,
                         const Matrix& target_embedding, int64_t max_tokens, int64_t max_drawn)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      embedding_(weights_.has_embedding ? weights_.embedding : target_embedding),
      max_tokens_(max_tokens),
      max_drawn_(max_drawn) {
  const auto make = [&](int64_t width) {
    return DeviceTensor(device, weights_.activations, {max_tokens, width});
  };
  for (DeviceTensor* const tensor : {&fused_, &delta_}) {
    *tensor = DeviceTensor(device, DType::kFloat32, {max_tokens, config_.hidden_size});
  }
  joined_ = make(2 * config_.hidden_size);
  normed_ = make(config_.hidden_size);
  for (DeviceTensor* const tensor : {&q_, &attended_}) *tensor = make(config_.q_size());
  for (DeviceTensor* const tensor : {&k_, &v_}) *tensor = make(config_.kv_size());
  for (DeviceTensor* const tensor : {&gate_, &up_}) *tensor = make(config_.intermediate_size);
  logits_ = DeviceTensor(device, DType::kFloat32, {max_drawn, config_.draft_vocab_size});
  drawn_ = DeviceTensor(device, DType::kInt32, {max_drawn});
}

size_t Eagle3Model::workspace_bytes(Device device) const {
  if (device.type == DeviceType::kCpu) return 0;
  size_t bytes =
      batch_decode_workspace_bytes(device, max_drawn_, config_.num_q_heads, config_.head_dim);
  const auto add = [&](const Matrix& m, int64_t num_rows, int64_t out, int num_products) {
    bytes = std::max(
        bytes, linear_site_workspace_bytes(device, num_rows, m.in_features, out, num_products, 0));
  };
  add(weights_.fuse, max_tokens_, config_.hidden_size, 1);
  add(weights_.q, max_tokens_, config_.q_size() + 2 * config_.kv_size(), 3);
  add(weights_.o, max_tokens_, config_.hidden_size, 1);
  add(weights_.gate, max_tokens_, 2 * config_.intermediate_size, 2);
  add(weights_.down, max_tokens_, config_.hidden_size, 1);
  add(weights_.head, max_drawn_, config_.draft_vocab_size, 1);
  return bytes;
}

/// Of several matrices that read x. A call has slices of x's dtype or of f32.
void Eagle3Model::multiply(const ExecContext& ctx, std::initializer_list<LinearSlice> products,
                           const ConstTensorView& x) const {
  if (ctx.device.type != DeviceType::kCpu) {
    const bool is_few = x.size(0) <= kDecodeRows;
    return linear_site(ctx, products, x, is_few ? LinearPath::kDecode : LinearPath::kPrompt);
  }
  std::array<LinearOutput, kMaxProducts> outputs;
  std::ranges::transform(products, outputs.begin(), [](const LinearSlice& product) {
    return LinearOutput{product.y, product.packed};
  });
  linear(ctx, std::span(outputs).first(products.size()), x);
}

void Eagle3Model::fuse(const ExecContext& ctx, const ConstTensorView& tapped) const {
  multiply(ctx, {weights_.fuse.slice(fused_.rows(tapped.size(0)))}, tapped);
}

void Eagle3Model::take_fused(const ExecContext& ctx, const TensorView& hidden,
                             const ConstTensorView& rows) const {
  heddle::embedding(ctx, hidden, rows, fused_.view());  // a plain choice of rows
}

/// The normalised embeddings and hidden states, side by side.
TensorView Eagle3Model::joined_input(const ExecContext& ctx, const TensorView& hidden,
                                     const ConstTensorView& token_ids) const {
  const int64_t num_tokens = hidden.size(0), width = config_.hidden_size;
  const RmsNormOptions options{.epsilon = config_.rms_epsilon};
  const TensorView embedded = delta_.rows(num_tokens), joined = joined_.rows(num_tokens);
  const TensorView right = joined.narrow(1, width, width);
  embedding(ctx, embedded, token_ids, embedding_);
  rms_norm(ctx, joined.narrow(1, 0, width), embedded, weights_.embedding_norm.view(), options);
  if (config_.norm_before_residual) {
    rms_norm(ctx, hidden, hidden, weights_.hidden_norm.view(), options);
    copy_rows(ctx, right, hidden);
  } else {
    rms_norm(ctx, right, hidden, weights_.hidden_norm.view(), options);
  }
  return joined;
}

void Eagle3Model::run(const ExecContext& ctx, const TensorView& hidden, const Tokens& tokens,
                      const PagedKv& cache) const {
  const int64_t num_tokens = hidden.size(0);
  const RmsNormOptions options{.epsilon = config_.rms_epsilon};
  const TensorView q = q_.rows(num_tokens), k = k_.rows(num_tokens), v = v_.rows(num_tokens);
  const TensorView attended = attended_.rows(num_tokens), normed = normed_.rows(num_tokens);
  const TensorView delta = delta_.rows(num_tokens);
  const auto heads = [&](const TensorView& t) { return as_heads(t, config_.head_dim); };

  const TensorView joined = joined_input(ctx, hidden, tokens.token_ids);
  multiply(ctx, {weights_.q.slice(q), weights_.k.slice(k), weights_.v.slice(v)}, joined);
  rope_kv_append(ctx, heads(q), cache, tokens.pages, heads(k), heads(v), tokens.q_indptr,
                 tokens.positions, config_.rope);
  if (tokens.is_one_each) {
    batch_decode(ctx, heads(attended), {}, heads(q), cache, tokens.pages);
  } else {
    batch_prefill(ctx, heads(attended), {}, heads(q), tokens.q_indptr, cache, tokens.pages);
  }
  multiply(ctx, {weights_.o.slice(delta)}, attended);
  fused_add_rms_norm(ctx, normed, hidden, delta, weights_.mlp_norm.view(), options);

  const TensorView gate = gate_.rows(num_tokens), up = up_.rows(num_tokens);
  multiply(ctx, {weights_.gate.slice(gate), weights_.up.slice(up)}, normed);
  silu_and_mul(ctx, gate, gate, up);
  multiply(ctx, {weights_.down.slice(delta)}, gate);
  add(ctx, hidden, delta);
}

void Eagle3Model::draw(const ExecContext& ctx, const TensorView& token_ids,
                       const ConstTensorView& hidden) const {
  const int64_t num_rows = hidden.size(0);
  const TensorView normed = normed_.rows(num_rows), logits = logits_.rows(num_rows);
  const TensorView drawn = drawn_.rows(num_rows);
  rms_norm(ctx, normed, hidden, weights_.output_norm.view(), {.epsilon = config_.rms_epsilon});
  multiply(ctx, {weights_.head.slice(logits)}, normed);
  greedy(ctx, drawn, {}, logits);
  take_drawn_tokens(ctx, token_ids, weights_.target_ids.view(), drawn);
}

}  // namespace heddle::model
