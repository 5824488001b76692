#include "model/source/made_model.h"

#include <algorithm>
#include <random>
#include <utility>

#include "heddle/core/error.h"

#include "files/gguf.h"
#include "files/json_tree.h"
#include "files/printable.h"
#include "model/families/family.h"
#include "model/model_text.h"

namespace heddle::model {
namespace {

constexpr size_t kNumDrawn = 31'253 * 32;  // blocks; their number is odd: rows are not alike
constexpr float kDeviation = 0.02f;

}  // namespace

void MadeWeights::add_vector(std::string name, int64_t size) {
  tensors_.insert_or_assign(std::move(name), Extents{1, 1, size});
}

void MadeWeights::add_matrix(std::string name, int64_t rows, int64_t columns) {
  HEDDLE_CHECK(columns % block_size(type_) == 0, path_, ": rows of ", files::quote(name), " have ",
               columns, " elements, not a whole number of blocks of ", heddle::name(type_));
  tensors_.insert_or_assign(std::move(name), Extents{2, rows, columns});
}

void MadeWeights::draw() {
  size_t matrix = 0, vector = 0;
  for (const auto& [name, extents] : tensors_) {
    size_t& largest = extents.rank == 1 ? vector : matrix;
    largest = std::max(largest, static_cast<size_t>(extents.rows * extents.columns));
  }
  vector_.assign(vector, 1.0f);
  std::mt19937_64 rng(seed_);
  std::normal_distribution<float> normal(0.0f, kDeviation);
  std::vector<float> drawn(std::min(matrix, kNumDrawn));
  for (float& value : drawn) value = normal(rng);
  matrix_.resize(stored_bytes(type_, static_cast<int64_t>(matrix)));
  size_t done = stored_bytes(type_, std::ssize(drawn));
  quantize({}, std::span(matrix_).first(done), type_, drawn);
  while (done < matrix_.size()) {
    const size_t count = std::min(done, matrix_.size() - done);
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
  const WeightType type = rank == 1 ? WeightType::kF32 : type_;
  return {.name = found->first,
          .path = &path_,
          .rank = rank,
          .rows = rows,
          .columns = columns,
          .type = type,
          .num_bytes = stored_bytes(type, rows * columns)};
}

void MadeWeights::read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const {
  const std::span<const std::byte> all =
      tensor.rank == 1 ? std::as_bytes(std::span(vector_)) : std::span<const std::byte>(matrix_);
  std::ranges::copy(all.subspan(first, to.size()), to.begin());
}

std::vector<std::string_view> MadeWeights::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, extents] : tensors_) names.push_back(name);
  return names;
}

MadeModel::MadeModel(std::string_view config_json, uint64_t seed, WeightType type,
                     std::string vocabulary)
    : vocabulary_(std::move(vocabulary)), weights_(seed, type) {
  const auto object = files::parse_json(config_json, path());
  config_ = read_folder_config(*object, path(), weights_).decoder;
  const DecoderConfig& c = config_;
  HEDDLE_CHECK(!c.fused_qkv && !c.fused_gate_up && !c.qkv_bias && !c.o_bias && !c.mlp_bias, path(),
               ": models of family ", c.family, " have fused or biased products");
  add_tensors();
  weights_.draw();
}

void MadeModel::add_tensors() {
  const DecoderConfig& c = config_;
  const TensorNames names = tensor_names();
  const BlockShape block = c.block();
  weights_.add_matrix(names.embedding, c.vocab_size, c.hidden_size);
  if (!c.tied_head) weights_.add_matrix(names.output, c.vocab_size, c.hidden_size);
  weights_.add_vector(names.output_norm, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = names.layer(layer);
    const auto norms = [&](bool has, const std::string& attention, const std::string& mlp) {
      if (!has) return;
      weights_.add_vector(prefix + attention, c.hidden_size);
      weights_.add_vector(prefix + mlp, c.hidden_size);
    };
    norms(c.norm_before, names.attention_norm, names.mlp_norm);
    norms(c.norm_after, names.attention_post_norm, names.mlp_post_norm);
    if (c.qk_norm != QkNorm::kNone) {
      const bool each = c.qk_norm == QkNorm::kEachHead;
      weights_.add_vector(prefix + names.q_norm, c.head_dim * (each ? 1 : c.num_q_heads));
      weights_.add_vector(prefix + names.k_norm, c.head_dim * (each ? 1 : c.num_kv_heads));
    }
    for (const BlockSlice& slice : block.slices) {
      weights_.add_matrix(names.of(layer, *slice.module) + ".weight", slice.dims.out,
                          slice.dims.in);
    }
  }
}

tokenizer::Tokenizer MadeModel::tokenizer() const {
  if (!vocabulary_.empty()) {
    return tokenizer::Tokenizer(read_vocabulary(files::GgufFile(vocabulary_)));
  }
  tokenizer::Vocabulary vocabulary;
  vocabulary.tokens = {"a"};
  vocabulary.pre_tokenizer = "gpt-2";
  return tokenizer::Tokenizer(std::move(vocabulary));
}

std::vector<int32_t> MadeModel::end_tokens() const {
  return vocabulary_.empty() ? std::vector<int32_t>()
                             : read_end_tokens(files::GgufFile(vocabulary_));
}

}  // namespace heddle::model
