#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/core/context.h"

#include "model/adapters/adapter.h"
#include "model/weights/decoder_weights.h"

namespace heddle::model {

/// |scale B A|^2, the sum of the squares of all values, of halves in host memory. B A is not
/// computed: the sum is scale^2 times that of the products of the values of A A^T and B^T B
/// [rank, rank], whose sums are in f32 over 1,024 features each and then in double.
[[nodiscard]] double squared_delta(const LowRank& pair);

/// Frobenius norms at one place: of what an adapter changes the base model's weight by, absent for
/// DoRA on top of a weight of the adapter's own, and of that weight.
struct PlaceNorms {
  std::optional<double> delta{};
  double base = 0;
};

/// The norms of adapters of one model. Those of its matrices are computed when they are first
/// needed, and kept.
class NormMeter {
 public:
  /// Both outlive it.
  NormMeter(const DecoderWeights& weights, const BlockShape& block)
      : weights_(weights), block_(block) {}

  /// For each pair of a loaded adapter that fits the model, then for what it has in the embedding
  /// and in the head: pair, weight and rows, those that there are. In any thread. Absent where
  /// `stop` became true meanwhile.
  [[nodiscard]] std::optional<std::vector<PlaceNorms>> measure(const ExecContext& ctx,
                                                               const Adapter& adapter,
                                                               const std::atomic<bool>& stop);

 private:
  [[nodiscard]] double squared_base(const ExecContext& ctx, const Matrix& matrix);
  [[nodiscard]] PlaceNorms norms_of(const ExecContext& ctx, const AdapterPair& pair);
  void add_part(const ExecContext& ctx, const VocabularyPart& part, const Matrix& base,
                bool is_embedding, std::vector<PlaceNorms>& norms);

  const DecoderWeights& weights_;
  const BlockShape& block_;
  std::mutex mutex_;
  std::map<const Matrix*, double> squared_;  // of matrices that were needed
};

}  // namespace heddle::model
