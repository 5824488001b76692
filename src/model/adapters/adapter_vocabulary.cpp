#include "model/adapters/adapter_vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "heddle/core/check.h"
#include "heddle/ops/lora.h"

#include "model/adapters/adapted_rows.h"

namespace heddle::model {
namespace {

constexpr int64_t kColumnsPerTask = 8192;

WeightType weight_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return WeightType::kF16;
    case DType::kBFloat16: return WeightType::kBF16;
    default: return WeightType::kF32;
  }
}

/// [columns, rows] of [rows, columns].
std::vector<float> transposed(const std::vector<float>& values, size_t rows) {
  const size_t columns = values.size() / rows;
  std::vector<float> result(values.size());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      result[column * rows + row] = values[row * columns + column];
    }
  }
  return result;
}

}  // namespace

VocabularyTable::VocabularyTable(const ExecContext& ctx, const VocabularyPart& part,
                                 const PackedWeight& base, Use use)
    : weight_(base) {
  if (part.weight.is_present() && !has_rows(ctx, base, part.weight)) take_weight(ctx, part.weight);
  for (size_t i = 0; i < part.token_ids.size(); ++i) {
    token_rows_[part.token_ids[i]] = part.token_rows.narrow(static_cast<int64_t>(i), 1).floats();
  }
  if (part.pair) take_pair(ctx, *part.pair, use);
}

void VocabularyTable::take_weight(const ExecContext& ctx, const StoredValues& stored) {
  weight_ = {weight_type(stored.dtype), stored.rows, stored.columns, nullptr};
  const size_t size = packed_bytes(weight_.type, stored.rows, stored.columns);
  memory_ = allocate_zeroed(ctx.device, size);
  pack_rows(ctx, {memory_.get(), size}, weight_.type, stored.rows, stored.columns, 0, stored.rows,
            stored.bytes());
  weight_.data = memory_.get();
}

void VocabularyTable::take_pair(const ExecContext& ctx, const LowRank& pair, Use use) {
  rank_ = static_cast<size_t>(pair.rank);
  scale_ = pair.scale;
  a_ = pair.stored_a().floats();
  if (use == Use::kEmbedding) a_ = transposed(a_, rank_);
  b_ = transposed(pair.stored_b().floats(), static_cast<size_t>(pair.out_features));
  if (pair.bias.is_present()) bias_ = pair.bias.floats();
  if (!pair.magnitude.is_present()) return;
  factor_ = use == Use::kHead ? dora_factors(ctx, weight_, pair)
                              : embedding_dora_factors(ctx, weight_, pair);
}

void VocabularyTable::embed(const ExecContext& ctx, TensorView y,
                            const ConstTensorView& token_ids) const {
  embedding(ctx, y, token_ids, weight_);
  if (token_rows_.empty() && rank_ == 0) return;
  const auto hidden_size = static_cast<size_t>(y.size(1));
  parallel_for(ctx, y.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t token = token_ids.data<int32_t>()[t];
      float* const row = y.data<float>() + t * y.stride(0);
      if (const auto own = token_rows_.find(token); own != token_rows_.end()) {
        std::ranges::copy(own->second, row);
      }
      if (rank_ == 0 || token < 0 || token >= num_tokens()) continue;
      add_low_rank_row(row, token, hidden_size, 1.0f);
      for (size_t i = 0; i < factor_.size(); ++i) row[i] *= factor_[i];
    }
  });
}

void VocabularyTable::add_to_rows(const ExecContext& ctx, const TensorView& y,
                                  const ConstTensorView& token_ids, float scale) const {
  parallel_for(ctx, y.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      add_low_rank_row(y.data<float>() + t * y.stride(0), token_ids.data<int32_t>()[t],
                       static_cast<size_t>(y.size(1)), scale);
    }
  });
}

void VocabularyTable::add_low_rank_row(float* row, int32_t token, size_t hidden_size,
                                       float scale) const {
  const float* const a = a_.data() + static_cast<size_t>(token) * rank_;
  for (size_t r = 0; r < rank_; ++r) {
    const float weight = scale_ * scale * a[r];
    const float* const b = b_.data() + r * hidden_size;
    for (size_t i = 0; i < hidden_size; ++i) row[i] += weight * b[i];
  }
}

void VocabularyTable::project(const ExecContext& ctx, const TensorView& logits,
                              const ConstTensorView& x,
                              FunctionRef<bool(int64_t)> is_active) const {
  linear(ctx, logits, x, weight_);
  for (int64_t t = 0; t < logits.size(0); ++t) {
    const float* const values = x.data<float>() + t * x.stride(0);
    float* const row = logits.data<float>() + t * logits.stride(0);
    for (const auto& [token, weights] : token_rows_) {
      float sum = 0;
      for (size_t k = 0; k < weights.size(); ++k) sum += weights[k] * values[k];
      row[token] = sum;
    }
    if (rank_ > 0 && is_active(t)) add_low_rank(ctx, row, values, 1.0f);
  }
}

void VocabularyTable::add_to_logits(const ExecContext& ctx, const TensorView& logits,
                                    const ConstTensorView& x, float scale,
                                    FunctionRef<bool(int64_t)> is_active) const {
  for (int64_t t = 0; t < logits.size(0); ++t) {
    if (!is_active(t)) continue;
    add_low_rank(ctx, logits.data<float>() + t * logits.stride(0),
                 x.data<float>() + t * x.stride(0), scale);
  }
}

void VocabularyTable::add_low_rank(const ExecContext& ctx, float* logits, const float* x,
                                   float scale) const {
  const auto hidden_size = static_cast<size_t>(weight_.in_features);
  const auto num_tokens = static_cast<size_t>(weight_.out_features);
  std::array<float, kMaxLoraRank> h;
  for (size_t r = 0; r < rank_; ++r) {
    float sum = 0;
    for (size_t k = 0; k < hidden_size; ++k) sum += a_[r * hidden_size + k] * x[k];
    h[r] = scale_ * scale * sum;
  }
  parallel_for(ctx, weight_.out_features, kColumnsPerTask, [&](int64_t first, int64_t last) {
    const auto begin = static_cast<size_t>(first), end = static_cast<size_t>(last);
    for (size_t r = 0; r < rank_; ++r) {
      const float* const b = b_.data() + r * num_tokens;
      for (size_t i = begin; i < end; ++i) logits[i] += h[r] * b[i];
    }
    if (!factor_.empty()) {
      for (size_t i = begin; i < end; ++i) logits[i] *= factor_[i];
    }
    if (!bias_.empty()) {
      for (size_t i = begin; i < end; ++i) logits[i] += scale_ * scale * bias_[i];
    }
  });
}

int64_t vocabulary_bytes(const Adapter& adapter, bool tied_head) {
  constexpr int64_t kFloat = sizeof(float);
  int64_t bytes = 0;
  for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    const StoredValues& weight = part->weight;
    if (weight.is_present()) {
      bytes += static_cast<int64_t>(
          packed_bytes(weight_type(weight.dtype), weight.rows, weight.columns));
    }
    if (part->pair) {
      const LowRank& pair = *part->pair;
      // Both halves, and factor and bias of each output.
      bytes += kFloat * (pair.rank * (pair.in_features + pair.out_features) +
                         2 * std::max(pair.in_features, pair.out_features));
    }
    const bool is_shared = tied_head && part == &adapter.embedding();
    bytes += kFloat * part->token_rows.num_elements() * (is_shared ? 2 : 1);
  }
  return bytes;
}

AdapterVocabularies::Tables AdapterVocabularies::make(const ExecContext& ctx,
                                                      const Adapter& adapter,
                                                      const PackedWeight& embedding,
                                                      const PackedWeight& head, bool tied_head) {
  using Use = VocabularyTable::Use;
  Tables tables;
  VocabularyPart of_head = adapter.head();
  const bool is_plain = adapter.embedding().is_empty() && of_head.is_empty();
  if (!is_plain && ctx.device.type != DeviceType::kCpu) {
    throw_error(ErrorCode::kUnsupported, adapter.path(),
                ": an embedding or a head of an adapter runs on the CPU alone (--device cpu)");
  }
  if (!adapter.embedding().is_empty()) {
    tables.embedding =
        std::make_unique<VocabularyTable>(ctx, adapter.embedding(), embedding, Use::kEmbedding);
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
    tables.head = std::make_unique<VocabularyTable>(ctx, of_head, head, Use::kHead);
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
                             const PackedWeight& embedding, const PackedWeight& head) {
  const auto has_dora = [](const LowRank& pair) { return pair.magnitude.is_present(); };
  if (std::ranges::any_of(adapter.pairs(), has_dora)) return "use_dora";
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
