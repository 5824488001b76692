#include "model/adapters/adapter.h"

#include <algorithm>
#include <cstring>

#include "heddle/core/dispatch.h"
#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/config/score_head.h"

namespace heddle::model {
namespace {

/// Checks one part of a vocabulary of num_tokens tokens; `what` names it in errors.
void check_part(const std::string& path, const char* what, const VocabularyPart& part,
                int64_t num_tokens, const ModelDims& dims, const LinearDims& pair_dims) {
  for (const StoredValues& rows : {part.weight, part.token_rows}) {
    HEDDLE_CHECK(!rows.is_present() || rows.columns == dims.hidden_size, path, ": its ", what,
                 " has rows of ", rows.columns, " features, the model's hidden size is ",
                 dims.hidden_size);
  }
  for (const int32_t id : part.token_ids) {
    HEDDLE_CHECK(id < num_tokens, path, ": has its own token ", id, " in its ", what,
                 ", which has ", num_tokens, " tokens");
  }
  if (!part.pair) return;
  const auto& [in, out] = pair_dims;
  HEDDLE_CHECK(part.pair->in_features == in && part.pair->out_features == out, path, ": adapts a ",
               what, " that takes ", part.pair->in_features, " features and gives ",
               part.pair->out_features, ", it takes ", in, " and gives ", out);
}

/// Whether all values are 0 or -0. Reads up to the first that is not.
/// Whether all values are this one; true of those that are absent.
bool are_all(float expected, const StoredValues& values) {
  if (!values.is_present()) return true;
  bool is_equal = true;
  dispatch_dtype<float, half, bfloat16>(values.dtype, "an adapter", [&]<class T>() {
    for (int64_t i = 0; is_equal && i < values.num_elements(); ++i) {
      T value;
      std::memcpy(&value, values.data + i * int64_t{sizeof(T)}, sizeof(T));
      is_equal = to_float(value) == expected;
    }
  });
  return is_equal;
}
bool is_zero(const StoredValues& values) { return are_all(0.0f, values); }

bool is_zero(const LowRank& pair) {
  const bool has_sum = pair.scale != 0.0f && !is_zero(pair.stored_a()) && !is_zero(pair.stored_b());
  const bool replaces =
      pair.magnitude.is_present() || pair.layer_bias.is_present() || !are_all(1.0f, pair.factor);
  return !has_sum && !replaces && (pair.scale == 0.0f || is_zero(pair.bias));
}

}  // namespace

bool is_zero(const Adapter& adapter) {
  if (adapter.score().is_present()) return false;
  for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    if (part->weight.is_present() || !part->token_ids.empty()) return false;
    if (part->pair && !is_zero(*part->pair)) return false;
  }
  return std::ranges::all_of(adapter.pairs(), [](const LowRank& pair) { return is_zero(pair); });
}

StoredValues StoredValues::narrow(int64_t first, int64_t count) const {
  return {dtype, count, columns, data + static_cast<size_t>(first * columns) * size_of(dtype),
          name};
}

void Adapter::check_vocabulary_fits(const ModelDims& dims) const {
  const auto num_tokens = [&](const VocabularyPart& part) {
    return part.weight.is_present() ? part.weight.rows : dims.vocab_size;
  };
  const int64_t of_embedding = num_tokens(embedding_), of_head = num_tokens(head_);
  check_part(path_, "embedding", embedding_, of_embedding, dims, {of_embedding, dims.hidden_size});
  check_part(path_, "head", head_, of_head, dims, {dims.hidden_size, of_head});
  HEDDLE_CHECK(of_head <= of_embedding, path_, ": its head gives ", of_head,
               " tokens, its embedding has ", of_embedding);
  if (!score_.is_present()) return;
  HEDDLE_CHECK(score_.columns == dims.hidden_size && score_.rows <= ScoreHead::kMaxLabels, path_,
               ": tensor ", files::quote(score_.name), " is [", score_.rows, ", ", score_.columns,
               "], expected [up to ", ScoreHead::kMaxLabels, ", ", dims.hidden_size, "]");
}

std::span<const std::byte> StoredValues::bytes() const {
  return {data, static_cast<size_t>(num_elements()) * size_of(dtype)};
}

std::vector<float> StoredValues::floats() const {
  std::vector<float> values(static_cast<size_t>(num_elements()));
  dispatch_dtype<float, half, bfloat16>(dtype, "an adapter", [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      values[i] = to_float(value);
    }
  });
  return values;
}

}  // namespace heddle::model
