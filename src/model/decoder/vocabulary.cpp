#include "model/decoder/vocabulary.h"

#include <algorithm>
#include <span>

#include "heddle/ops/elementwise.h"

namespace heddle::model {
namespace {

using VocabularyOf = const VocabularyTable* (AdapterVocabularies::*)(int32_t) const;

/// Whose embedding or head a row has: a table, null for the base model's, to which a list of
/// adapters adds.
struct Vocabulary {
  const VocabularyTable* table = nullptr;
  std::span<const AdapterUse> uses{};

  bool operator==(const Vocabulary& other) const {
    return table == other.table && uses.data() == other.uses.data();
  }
  /// The matrix that its rows are made of: the base model's, or the adapter's own.
  [[nodiscard]] const Matrix* matrix(const Matrix& base) const {
    return table != nullptr && table->has_weight() ? &table->weight() : &base;
  }
};

Vocabulary vocabulary_of(const StepBatch& batch, int64_t seq, const AdapterVocabularies& own,
                         VocabularyOf table_of) {
  const std::span<const AdapterUse> uses = batch.uses_of(seq);
  if (uses.empty()) return {.table = (own.*table_of)(batch.seq_slots[size_t(seq)])};
  const auto adds = [&](const AdapterUse& use) { return (own.*table_of)(use.slot) != nullptr; };
  return {.uses = std::ranges::any_of(uses, adds) ? uses : std::span<const AdapterUse>()};
}

/// Calls run(begin, end, value) for neighbours of [0, count) for which value_of gives the same.
template <class Of, class Run>
void for_runs(int64_t count, const Of& value_of, const Run& run) {
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    const auto value = value_of(begin);
    while (end < count && value_of(end) == value) ++end;
    run(begin, end, value);
  }
}

void finish_logits(const DecoderStep& s, const TensorView& logits) {
  const DecoderConfig& config = s.config;
  if (config.logits_scale != 1.0f) scale(s.ctx, logits, config.logits_scale);
  if (config.logits_soft_cap != 0.0f) soft_cap(s.ctx, logits, config.logits_soft_cap);
}

}  // namespace

/// Rows of one matrix in one call, then the changes of each adapter.
void embed(const DecoderStep& s, const StepBatch& batch, const AdapterVocabularies& own) {
  const Matrix& base = s.weights.embedding;
  if (!own.any()) return model::embedding(s.ctx, s.residual, s.inputs.token_ids, base);
  const auto of = [&](int64_t seq) {
    return vocabulary_of(batch, seq, own, &AdapterVocabularies::embedding);
  };
  const auto matrix_of = [&](int64_t seq) { return of(seq).matrix(base); };
  const auto tokens_of = [&](const auto& t, int64_t begin, int64_t end) {
    const int64_t first = batch.q_indptr[size_t(begin)];
    return t.narrow(0, first, batch.q_indptr[size_t(end)] - first);
  };
  for_runs(batch.num_seqs(), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    model::embedding(s.ctx, tokens_of(s.residual, begin, end),
                     tokens_of(s.inputs.token_ids, begin, end), *matrix);
  });
  for_runs(batch.num_seqs(), of, [&](int64_t begin, int64_t end, const Vocabulary& vocabulary) {
    const TensorView rows = tokens_of(s.residual, begin, end);
    const ConstTensorView ids = tokens_of(s.inputs.token_ids, begin, end);
    if (vocabulary.table != nullptr) vocabulary.table->change_rows(s.ctx, rows, ids);
    for (const AdapterUse& use : vocabulary.uses) {
      const VocabularyTable* const table = own.embedding(use.slot);
      if (table != nullptr) table->add_to_rows(s.ctx, rows, ids, use.scale);
    }
  });
}

/// On a GPU all rows take the path of decode: few rows have logits.
void head(const DecoderStep& s, const StepBatch& batch, const AdapterVocabularies& own,
          const TensorView& last, const TensorView& logits) {
  const Matrix& base = s.weights.output;
  const auto of = [&](int64_t row) -> Vocabulary {
    if (!own.any()) return {};
    return vocabulary_of(batch, batch.logit_seqs[size_t(row)], own, &AdapterVocabularies::head);
  };
  const auto matrix_of = [&](int64_t row) { return of(row).matrix(base); };
  const auto rows_of = [&](int64_t begin, int64_t end, const Matrix& matrix) {
    return logits.narrow(0, begin, end - begin).narrow(1, 0, matrix.out_features);
  };
  for_runs(last.size(0), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    product(s.ctx, rows_of(begin, end, *matrix), last.narrow(0, begin, end - begin), *matrix,
            s.weights.product_activations);
  });
  for_runs(last.size(0), of, [&](int64_t begin, int64_t end, const Vocabulary& vocabulary) {
    if (vocabulary == Vocabulary{}) return;
    const TensorView rows = rows_of(begin, end, *vocabulary.matrix(base));
    const TensorView x = last.narrow(0, begin, end - begin);
    const ConstTensorView slots = s.inputs.logit_slots.narrow(0, begin, end - begin);
    if (vocabulary.table != nullptr) vocabulary.table->change_logits(s.ctx, rows, x, slots);
    for (const AdapterUse& use : vocabulary.uses) {
      const VocabularyTable* const table = own.head(use.slot);
      if (table != nullptr) table->add_to_logits(s.ctx, rows, x, use.scale, slots);
    }
  });
  for_runs(last.size(0), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    finish_logits(s, rows_of(begin, end, *matrix));
  });
}

}  // namespace heddle::model
