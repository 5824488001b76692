#include "engine/rows/row_values.h"

#include <cmath>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {
namespace {

using Kind = WantedValues::Kind;

void check_unmixed(const Request& request) {
  const std::pair<const char*, bool> fields[] = {
      {"top_logprobs", request.top_logprobs != 0},
      {"prompt_logprobs", request.prompt_logprobs},
      {"min_tokens", request.min_tokens != 0},
      {"logit_bias", !request.logit_bias.empty()},
      {"bad_words", !request.bad_words.empty()},
      {"allowed_token_ids", !request.allowed_token_ids.empty()},
      {"format", !request.format.is_free()},
      {"thinking", request.thinking.max_tokens >= 0}};
  for (const auto& [name, is_given] : fields) {
    HEDDLE_CHECK(!is_given, name, " is given, which is for answers; the request wants values");
  }
}

/// That no field is given which the kind does not read.
void check_fields(const WantedValues& wanted) {
  const bool shapes = !wanted.pooling.empty() || wanted.normalize || wanted.dimensions != 0;
  HEDDLE_CHECK(!shapes || wanted.kind == Kind::kEmbedding,
               "pooling, normalize and dimensions are for embeddings alone");
  HEDDLE_CHECK(wanted.token_ids.empty() || wanted.kind == Kind::kTokenScores,
               "values.token_ids are for scores of tokens alone");
}

void check_embedding(const WantedValues& wanted, const RowValues::Source& source) {
  if (!source.embedding.unsupported.empty() && wanted.pooling.empty()) {
    throw_error(ErrorCode::kUnsupported, source.embedding.unsupported);
  }
  HEDDLE_CHECK(wanted.pooling.empty() || model::find_pooling(wanted.pooling), "pooling is ",
               files::quote(wanted.pooling), ", expected last, mean or cls");
  HEDDLE_CHECK(wanted.dimensions >= 0 && wanted.dimensions <= source.hidden_size, "dimensions is ",
               wanted.dimensions, ", expected 1 to ", source.hidden_size, " (0: all)");
}

void check_tokens(const std::vector<int32_t>& tokens, int64_t num_logits) {
  if (num_logits == 0) {
    throw_error(ErrorCode::kUnsupported,
                "the model has no head for tokens, so that they have no scores");
  }
  HEDDLE_CHECK(!tokens.empty() && tokens.size() <= kMaxScoredTokens, "values.token_ids has ",
               tokens.size(), " tokens, expected 1 to ", kMaxScoredTokens);
  for (const int32_t id : tokens) {
    HEDDLE_CHECK(id >= 0 && id < num_logits, "values.token_ids has token ", id,
                 ", the vocabulary has ", num_logits);
  }
}

}  // namespace

std::unique_ptr<RowValues> RowValues::make(const Request& request, const Source& source) {
  const WantedValues& wanted = request.values;
  if (wanted.kind == Kind::kNone) return nullptr;
  check_unmixed(request);
  check_fields(wanted);
  std::unique_ptr<RowValues> row(new RowValues);
  row->wanted_ = wanted;
  switch (wanted.kind) {
    case Kind::kEmbedding:
      check_embedding(wanted, source);
      row->pooling_ = model::find_pooling(wanted.pooling).value_or(source.embedding.pooling);
      row->normalizes_ = wanted.normalize.value_or(source.embedding.normalizes);
      break;
    case Kind::kClasses:
      if (source.score == nullptr) {
        throw_error(ErrorCode::kUnsupported,
                    "neither the model nor the adapter has a score head; a model of the class "
                    "ForSequenceClassification or an adapter with modules_to_save \"score\" has");
      }
      row->score_ = source.score;
      break;
    case Kind::kTokenScores: check_tokens(wanted.token_ids, source.num_logits); break;
    case Kind::kNone: break;
  }
  return row;
}

/// In double, and rounded once: the sum is that of f32 additions.
std::vector<float> RowValues::embedding(int64_t prompt_tokens) const {
  std::vector<double> x(collected.begin(), collected.end());
  if (wanted_.dimensions > 0) x.resize(static_cast<size_t>(wanted_.dimensions));
  const bool is_mean = pooling_ == model::Pooling::kMean;
  double divisor = is_mean ? static_cast<double>(prompt_tokens) : 1.0;
  if (normalizes_) {
    double sum = 0;
    for (const double each : x) sum += each * each;
    divisor = sum > 0 ? std::sqrt(sum) : 1.0;  // of a mean as well: its count cancels out
  }
  for (double& each : x) each /= divisor;
  return {x.begin(), x.end()};
}

std::vector<float> RowValues::token_scores() const {
  const size_t count = wanted_.token_ids.size();
  const double log_sum = static_cast<double>(collected[0]) - static_cast<double>(collected[count]);
  std::vector<float> scores;
  for (size_t i = 0; i < count; ++i) {
    scores.push_back(static_cast<float>(static_cast<double>(collected[i]) - log_sum));
  }
  return scores;
}

void RowValues::finish(Completion& completion, int64_t prompt_tokens) const {
  switch (wanted_.kind) {
    case Kind::kEmbedding: completion.values = embedding(prompt_tokens); break;
    case Kind::kClasses:
      completion.values = score_->values(collected, wanted_.activates);
      completion.labels = score_->labels();
      break;
    case Kind::kTokenScores: completion.values = token_scores(); break;
    case Kind::kNone: break;
  }
}

}  // namespace heddle
