#include "model/adapters/adapter_vocabulary.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/ops/adapter_parts.h"
#include "heddle/ops/lora.h"

#include "model/adapters/adapted_rows.h"
#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

constexpr int64_t kColumnsPerTask = 8192;

bool on_gpu(const ExecContext& ctx) { return ctx.device.type != DeviceType::kCpu; }

}  // namespace

VocabularyTable::VocabularyTable(const ExecContext& ctx, const VocabularyPart& part,
                                 const Matrix& base, Use use, DType activations)
    : weight_(base) {
  if (part.weight.is_present() && !has_rows(ctx, base, part.weight)) {
    own_ = own_matrix(ctx, part.weight, activations);
    weight_ = own_.matrix;
  }
  if (!part.token_ids.empty()) take_rows(ctx, part);
  if (!part.pair) return;
  rank_ = part.pair->rank;
  scale_ = part.pair->scale;
  if (use == Use::kEmbedding) {
    take_embedding_pair(ctx, *part.pair);
  } else {
    take_head_pair(ctx, *part.pair, activations);
  }
}

/// In the order of the ids, of which the last row counts where one is given twice.
void VocabularyTable::take_rows(const ExecContext& ctx, const VocabularyPart& part) {
  std::vector<int64_t> order(part.token_ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id_of = [&](int64_t i) { return part.token_ids[static_cast<size_t>(i)]; };
  std::ranges::stable_sort(order, {}, id_of);
  std::vector<int32_t> ids;
  std::vector<float> rows;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i + 1 < order.size() && id_of(order[i + 1]) == id_of(order[i])) continue;
    ids.push_back(id_of(order[i]));
    const std::vector<float> row = part.token_rows.narrow(order[i], 1).floats();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  own_ids_ = DeviceTensor(ctx, std::span<const int32_t>(ids));
  own_rows_ = tensor_of(ctx, rows, {std::ssize(ids), part.token_rows.columns});
}

void VocabularyTable::take_embedding_pair(const ExecContext& ctx, const LowRank& pair) {
  const std::vector<float> a = pair.stored_a().floats(), b = pair.stored_b().floats();
  a_ = tensor_of(ctx, transposed(a, rank_), {pair.in_features, rank_});
  b_ = tensor_of(ctx, transposed(b, pair.out_features), {rank_, pair.out_features});
  if (!pair.magnitude.is_present()) return;
  factor_ = DeviceTensor(ctx, std::span<const float>(embedding_dora_factors(ctx, weight_, pair)));
}

void VocabularyTable::take_head_pair(const ExecContext& ctx, const LowRank& pair,
                                     DType activations) {
  const std::vector<float> a = pair.stored_a().floats(), b = pair.stored_b().floats();
  if (on_gpu(ctx)) {
    a_ = tensor_of(ctx, a, {1, rank_, pair.in_features}, activations);
    b_ = tensor_of(ctx, b, {1, pair.out_features, rank_}, activations);
  } else {
    a_ = tensor_of(ctx, a, {rank_, pair.in_features});
    b_ = tensor_of(ctx, transposed(b, pair.out_features), {rank_, pair.out_features});
  }
  if (pair.magnitude.is_present() || pair.bias.is_present()) take_affine(ctx, pair);
}

/// The offset is times scale_ in the calls.
void VocabularyTable::take_affine(const ExecContext& ctx, const LowRank& pair) {
  std::vector<float> values(static_cast<size_t>(pair.out_features), 1.0f);
  if (pair.magnitude.is_present()) values = dora_factors(ctx, weight_, pair);
  if (pair.bias.is_present()) {
    const std::vector<float> bias = pair.bias.floats();
    values.insert(values.end(), bias.begin(), bias.end());
  }
  const int32_t num_rows = pair.bias.is_present() ? 2 : 1;
  affine_ = tensor_of(ctx, values, {num_rows, pair.out_features});
  const LoraWeight entry{
      .data = affine_.view().raw(), .rank = num_rows, .row_stride = pair.out_features};
  entry_ = allocate_zeroed(ctx.device, sizeof(entry));
  copy_from_host(ctx, entry_.get(), std::as_bytes(std::span(&entry, 1)));
}

void VocabularyTable::change_rows(const ExecContext& ctx, const TensorView& y,
                                  const ConstTensorView& token_ids) const {
  if (own_ids_.view()) replace_rows(ctx, y, token_ids, own_ids_.view(), own_rows_.view());
  if (rank_ == 0) return;
  add_low_rank_rows(ctx, y, token_ids, a_.view(), b_.view(), factor_.view(), scale_);
}

void VocabularyTable::add_to_rows(const ExecContext& ctx, const TensorView& y,
                                  const ConstTensorView& token_ids, float scale) const {
  if (rank_ == 0) return;
  add_low_rank_rows(ctx, y, token_ids, a_.view(), b_.view(), {}, scale_ * scale);
}

void VocabularyTable::change_logits(const ExecContext& ctx, const TensorView& logits,
                                    const ConstTensorView& x, const ConstTensorView& slots) const {
  if (own_ids_.view()) linear_at(ctx, logits, x, own_ids_.view(), own_rows_.view());
  add_to_logits(ctx, logits, x, 1.0f, slots);
}

void VocabularyTable::add_to_logits(const ExecContext& ctx, const TensorView& logits,
                                    const ConstTensorView& x, float scale,
                                    const ConstTensorView& slots) const {
  if (rank_ == 0) return;
  if (on_gpu(ctx)) {
    add_delta_on_gpu(ctx, logits, x, scale_ * scale, slots);
  } else {
    add_delta_on_cpu(ctx, logits, x, scale_ * scale, slots);
  }
  if (!affine_.view()) return;
  const LoraTable affine{.entries = reinterpret_cast<const LoraWeight*>(entry_.get()),
                         .num_slots = 1,
                         .max_rank = 2,
                         .device = ctx.device};
  const LoraSlice slice{logits};
  apply_affines(ctx, {&slice, 1}, affine, LoraBatch::from_ids(slots), scale_ * scale);
}

void VocabularyTable::add_delta_on_cpu(const ExecContext& ctx, const TensorView& logits,
                                       const ConstTensorView& x, float scale,
                                       const ConstTensorView& slots) const {
  const int64_t hidden_size = weight_.in_features, num_tokens = weight_.out_features;
  std::array<float, kMaxLoraRank> h;
  for (int64_t t = 0; t < logits.size(0); ++t) {
    if (slots.data<int32_t>()[t] == kNoAdapter) continue;
    const float* const values = x.data<float>() + t * x.stride(0);
    float* const row = logits.data<float>() + t * logits.stride(0);
    for (int64_t r = 0; r < rank_; ++r) {
      const float* const a = a_.view().data<float>() + r * hidden_size;
      float sum = 0;
      for (int64_t k = 0; k < hidden_size; ++k) sum += a[k] * values[k];
      h[static_cast<size_t>(r)] = scale * sum;
    }
    parallel_for(ctx, num_tokens, kColumnsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rank_; ++r) {
        const float* const b = b_.view().data<float>() + r * num_tokens;
        for (int64_t i = begin; i < end; ++i) row[i] += h[static_cast<size_t>(r)] * b[i];
      }
    });
  }
}

void VocabularyTable::add_delta_on_gpu(const ExecContext& ctx, const TensorView& logits,
                                       const ConstTensorView& x, float scale,
                                       const ConstTensorView& slots) const {
  Workspace& workspace = require_workspace(ctx, "the head of an adapter");
  const Workspace::Scope scope(workspace);
  const auto size = static_cast<size_t>(x.size(0) * rank_);
  const TensorView h(reinterpret_cast<std::byte*>(workspace.take<float>(size).data()),
                     DType::kFloat32, ctx.device, {x.size(0), rank_});
  const LoraBatch batch = LoraBatch::from_ids(slots);
  lora_shrink(ctx, h, x, a_.view(), batch);
  lora_expand(ctx, logits, h, b_.view(), batch, 0, scale);
}

size_t VocabularyTable::workspace_bytes(Device device, int64_t num_rows) const {
  if (device.type == DeviceType::kCpu) return 0;
  const int64_t hidden_size = weight_.in_features;
  const size_t of_product =
      linear_site_workspace_bytes(device, num_rows, hidden_size, num_tokens(), 1, 0);
  if (rank_ == 0) return of_product;
  const size_t of_delta =
      Workspace::bytes_for<float>(static_cast<size_t>(num_rows * rank_)) +
      lora_apply_workspace_bytes(device, num_rows, hidden_size, 1, static_cast<int>(rank_));
  return std::max(of_product, of_delta);
}

int64_t vocabulary_bytes(const Adapter& adapter, bool tied_head, std::optional<DType> rounded_to) {
  constexpr int64_t kFloat = sizeof(float);
  int64_t bytes = 0;
  for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    const bool is_head = part == &adapter.head();
    const StoredValues& weight = part->weight;
    if (weight.is_present()) bytes += own_matrix_bytes(weight, rounded_to);
    if (part->pair) {
      const LowRank& pair = *part->pair;
      // Both halves, factor and bias of each output, and where these lie.
      const int64_t of_half =
          is_head && rounded_to ? static_cast<int64_t>(size_of(*rounded_to)) : kFloat;
      bytes += of_half * pair.rank * (pair.in_features + pair.out_features) +
               kFloat * 2 * std::max(pair.in_features, pair.out_features) +
               static_cast<int64_t>(sizeof(LoraWeight));
    }
    const bool is_shared = tied_head && !is_head;
    const int64_t of_rows = kFloat * part->token_rows.num_elements() +
                            static_cast<int64_t>(sizeof(int32_t)) * std::ssize(part->token_ids);
    bytes += of_rows * (is_shared ? 2 : 1);
  }
  return bytes;
}

AdapterVocabularies::Tables AdapterVocabularies::make(const ExecContext& ctx,
                                                      const Adapter& adapter,
                                                      const Matrix& embedding, const Matrix& head,
                                                      bool tied_head, DType activations) {
  using Use = VocabularyTable::Use;
  Tables tables;
  VocabularyPart of_head = adapter.head();
  if (!adapter.embedding().is_empty()) {
    tables.embedding = std::make_unique<VocabularyTable>(ctx, adapter.embedding(), embedding,
                                                         Use::kEmbedding, activations);
    // PEFT ties the rows of single tokens as the model ties the whole.
    if (tied_head && of_head.token_ids.empty() && !of_head.pair) {
      const int64_t rows = of_head.weight.is_present() ? of_head.weight.rows : head.out_features;
      for (const int32_t id : adapter.embedding().token_ids) {
        HEDDLE_CHECK(id < rows, adapter.path(), ": has its own token ", id,
                     " in its embedding, the head that is tied to it has ", rows, " tokens");
      }
      of_head.token_ids = adapter.embedding().token_ids;
      of_head.token_rows = adapter.embedding().token_rows;
    }
  }
  if (!of_head.is_empty()) {
    tables.head = std::make_unique<VocabularyTable>(ctx, of_head, head, Use::kHead, activations);
  }
  return tables;
}

void AdapterVocabularies::put(int32_t slot, Tables tables) noexcept {
  if (static_cast<size_t>(slot) == tables_.size()) tables_.emplace_back();
  tables_[static_cast<size_t>(slot)] = std::move(tables);
  any_ = std::ranges::any_of(tables_, [](const Tables& of_slot) {
    return of_slot.embedding != nullptr || of_slot.head != nullptr;
  });
}

std::string_view without_sum(const ExecContext& ctx, const Adapter& adapter,
                             const Matrix& embedding, const Matrix& head) {
  const auto has_dora = [](const LowRank& pair) { return pair.magnitude.is_present(); };
  const auto has_layer_bias = [](const LowRank& pair) { return pair.layer_bias.is_present(); };
  const auto has_factor = [](const LowRank& pair) { return pair.factor.is_present(); };
  if (std::ranges::any_of(adapter.pairs(), has_factor)) return "IA3";
  if (std::ranges::any_of(adapter.pairs(), has_dora)) return "use_dora";
  if (std::ranges::any_of(adapter.pairs(), has_layer_bias)) return "biases of layers (bias)";
  if (adapter.score().is_present()) return "a score head of its own";
  for (const auto& [part, base] :
       {std::pair(&adapter.embedding(), &embedding), {&adapter.head(), &head}}) {
    if (part->pair && has_dora(*part->pair)) return "use_dora";
    if (!part->token_ids.empty()) return "trainable_token_indices";
    if (part->weight.is_present() && !has_rows(ctx, *base, part->weight)) {
      return "an embedding or a head of its own";
    }
  }
  return {};
}

}  // namespace heddle::model
