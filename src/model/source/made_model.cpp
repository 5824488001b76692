#include "model/source/made_model.h"

#include <algorithm>
#include <random>
#include <utility>

#include "heddle/core/error.h"

#include "files/parse_json.h"
#include "files/printable.h"
#include "model/families/family.h"

namespace heddle::model {
namespace {

constexpr size_t kNumDrawn = 1'000'003;  // a prime: rows of a matrix are not alike
constexpr float kDeviation = 0.02f;

}  // namespace

void MadeWeights::add_vector(std::string name, int64_t size) {
  tensors_.insert_or_assign(std::move(name), Extents{1, 1, size});
}

void MadeWeights::add_matrix(std::string name, int64_t rows, int64_t columns) {
  tensors_.insert_or_assign(std::move(name), Extents{2, rows, columns});
}

void MadeWeights::draw() {
  size_t matrix = 0, vector = 0;
  for (const auto& [name, extents] : tensors_) {
    size_t& largest = extents.rank == 1 ? vector : matrix;
    largest = std::max(largest, static_cast<size_t>(extents.rows * extents.columns));
  }
  vector_.assign(vector, from_float<bfloat16>(1.0f));
  matrix_.resize(matrix);
  std::mt19937_64 rng(seed_);
  std::normal_distribution<float> normal(0.0f, kDeviation);
  const size_t num_drawn = std::min(matrix, kNumDrawn);
  for (size_t i = 0; i < num_drawn; ++i) matrix_[i] = from_float<bfloat16>(normal(rng));
  for (size_t done = num_drawn; done < matrix;) {
    const size_t count = std::min(done, matrix - done);
    std::copy_n(matrix_.data(), count, matrix_.data() + done);
    done += count;
  }
}

bool MadeWeights::contains(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

StoredTensor MadeWeights::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  HEDDLE_CHECK(found != tensors_.end(), path_, ": has no tensor ", files::quote(name));
  const auto& [rank, rows, columns] = found->second;
  const std::span<const bfloat16> all(rank == 1 ? vector_ : matrix_);
  return {.name = found->first,
          .path = &path_,
          .rank = rank,
          .rows = rows,
          .columns = columns,
          .type = WeightType::kBF16,
          .data = std::as_bytes(all.first(static_cast<size_t>(rows * columns)))};
}

std::vector<std::string_view> MadeWeights::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, extents] : tensors_) names.push_back(name);
  return names;
}

MadeModel::MadeModel(std::string_view config_json, uint64_t seed) : weights_(seed) {
  const auto object = files::parse_json<nlohmann::json>(config_json, path());
  config_ = read_folder_config(JsonSettings(*object, path()), weights_);
  const DecoderConfig& c = config_;
  HEDDLE_CHECK(!c.fused_qkv && !c.fused_gate_up && !c.qkv_bias && !c.o_bias && !c.mlp_bias, path(),
               ": models of family ", c.family, " have fused or biased products");
  add_tensors();
  weights_.draw();
}

void MadeModel::add_tensors() {
  const DecoderConfig& c = config_;
  const TensorNames names = tensor_names();
  const ModelDims dims = c.dims();
  weights_.add_matrix(names.embedding, c.vocab_size, c.hidden_size);
  if (!c.tied_head) weights_.add_matrix(names.output, c.vocab_size, c.hidden_size);
  weights_.add_vector(names.output_norm, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = names.layer_prefix + std::to_string(layer) + ".";
    const auto norms = [&](bool has, const std::string& attention, const std::string& mlp) {
      if (!has) return;
      weights_.add_vector(prefix + attention, c.hidden_size);
      weights_.add_vector(prefix + mlp, c.hidden_size);
    };
    norms(c.norm_before, names.attention_norm, names.mlp_norm);
    norms(c.norm_after, names.attention_post_norm, names.mlp_post_norm);
    if (c.qk_norm != QkNorm::kNone) {
      const bool each = c.qk_norm == QkNorm::kEachHead;
      weights_.add_vector(prefix + names.q_norm, each ? c.head_dim : dims[Projection::kQ].out);
      weights_.add_vector(prefix + names.k_norm, each ? c.head_dim : dims[Projection::kK].out);
    }
    for (int p = 0; p < kNumProjections; ++p) {
      const auto index = static_cast<size_t>(p);
      weights_.add_matrix(prefix + names.projections[index] + ".weight",
                          dims.projections[index].out, dims.projections[index].in);
    }
  }
}

tokenizer::Tokenizer MadeModel::tokenizer() const {
  tokenizer::Vocabulary vocabulary;
  vocabulary.tokens = {"a"};
  vocabulary.pre_tokenizer = "gpt-2";
  return tokenizer::Tokenizer(std::move(vocabulary));
}

}  // namespace heddle::model
