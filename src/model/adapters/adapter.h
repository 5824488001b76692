#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/dtype.h"

#include "model/config/block_shape.h"

namespace heddle::model {

/// A tensor where a file has it: f32, f16 or bf16, without gaps, at any alignment.
struct StoredValues {
  DType dtype = DType::kFloat32;
  int64_t rows = 0, columns = 0;  // one row where the tensor has one extent
  const std::byte* data = nullptr;
  std::string_view name{};  // of the tensor, for errors; the adapter keeps it

  [[nodiscard]] bool is_present() const { return data != nullptr; }
  [[nodiscard]] int64_t num_elements() const { return rows * columns; }
  /// Rows [first, first + count).
  [[nodiscard]] StoredValues narrow(int64_t first, int64_t count) const;
  [[nodiscard]] std::vector<float> floats() const;
  [[nodiscard]] std::span<const std::byte> bytes() const;
};

/// What an adapter makes of one product y = W x + c, c the model's own bias: by itself
///   y += scale * (B (A x) + bias)
/// and with a magnitude m (DoRA), row by row of W,
///   y = m / |W + scale * B A| * (W x + scale * B A x) + c
/// A layer_bias is in the place of c. A factor f (IA3) multiplies what comes out, c included:
///   y = f * (W x + scale * B A x + c)
struct LowRank {
  int64_t rank = 0, in_features = 0, out_features = 0;
  float scale = 0.0f;                                        // alpha / rank, or alpha / sqrt(rank)
  DType dtype = DType::kFloat32;                             // of both halves: f32, f16 or bf16
  const std::byte* a = nullptr;                              // [rank, in_features], any alignment
  const std::byte* b = nullptr;                              // [out_features, rank], any alignment
  StoredValues magnitude{}, bias{}, layer_bias{}, factor{};  // [out_features], or absent
  std::string_view a_name{}, b_name{};                       // of the tensors

  /// Whether it multiplies the rows of W, each by a factor.
  [[nodiscard]] bool scales_rows() const { return magnitude.is_present() || factor.is_present(); }
  /// Those of its vectors that are there and those that are absent.
  [[nodiscard]] std::array<const StoredValues*, 4> vectors() const {
    return {&magnitude, &bias, &layer_bias, &factor};
  }
  [[nodiscard]] StoredValues stored_a() const { return {dtype, rank, in_features, a, a_name}; }
  [[nodiscard]] StoredValues stored_b() const { return {dtype, out_features, rank, b, b_name}; }
};

/// The two halves that an adapter adds to one linear layer. Rows in the order of the Hugging Face
/// checkpoint: where a model file permutes the rows of q and k, B's rows must be permuted alike.
struct AdapterPair : LowRank {
  int64_t layer = 0;
  const LinearModule* module = &kLinearModules[0];
};

/// What an adapter has in the embedding or the head, which it may adapt as a linear layer (the
/// embedding's A is [rank, num_tokens]), replace, or give other rows for some tokens.
struct VocabularyPart {
  std::optional<LowRank> pair;
  StoredValues weight;             // [num_tokens, hidden_size] in place of the base's, or absent
  std::vector<int32_t> token_ids;  // [num_rows]
  StoredValues token_rows;         // [num_rows, hidden_size], or absent

  [[nodiscard]] bool is_empty() const { return !pair && !weight.is_present() && token_ids.empty(); }
};

/// The tensors of an adapter's file, and those that it computes with: without a second copy of one,
/// and without what the base model has.
struct TensorCounts {
  int64_t given = 0, applied = 0;
};

class MedusaFiles;
class Adapter;
/// Whether a loaded adapter changes no value of the model: its sums are zero, and it has nothing in
/// place of what the model has. Of DoRA, which has, that is not known.
[[nodiscard]] bool is_zero(const Adapter& adapter);

/// A LoRA adapter of any file format. Its values lie in memory that the object keeps. `load` reads
/// them; nothing that is validated or planned before needs them.
class Adapter {
 public:
  virtual ~Adapter() = default;

  /// Reads the values.
  virtual void load() {}

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The model that it was made for, as it names it; may be empty.
  [[nodiscard]] const std::string& base_model() const { return base_model_; }
  /// By layer, then module; each at most once, no rank above kMaxLoraRank.
  [[nodiscard]] const std::vector<AdapterPair>& pairs() const { return pairs_; }

  [[nodiscard]] const VocabularyPart& embedding() const { return embedding_; }
  [[nodiscard]] const VocabularyPart& head() const { return head_; }
  /// [num_labels, hidden_size] of a score head of its own, and [num_labels] that are added to its
  /// logits; or absent.
  [[nodiscard]] const StoredValues& score() const { return score_; }
  [[nodiscard]] const StoredValues& score_bias() const { return score_bias_; }

  /// Whether it has an embedding or a head in place of the base's.
  [[nodiscard]] bool replaces_rows() const {
    return embedding_.weight.is_present() || head_.weight.is_present();
  }

  [[nodiscard]] TensorCounts num_tensors() const { return num_tensors_; }

  /// Medusa heads of its folder, which draft for its rows and change nothing else; null: none. They
  /// have values after MedusaFiles::load.
  [[nodiscard]] const std::shared_ptr<MedusaFiles>& heads() const { return heads_; }
  void set_heads(std::shared_ptr<MedusaFiles> heads) { heads_ = std::move(heads); }

  /// aLoRA: the adapter acts on linear layers from where these last begin in a prompt, and not at
  /// all where they do not come up. Empty: on every token.
  [[nodiscard]] const std::vector<int32_t>& invocation_tokens() const { return invocation_tokens_; }

  /// Error(kInvalidArgument) unless every part fits its place in the model.
  virtual void check_fits(const ModelDims& dims) const = 0;
  /// What is odd about an adapter that fits, one sentence each: settings that heddle does not know,
  /// and layers that it shall change but has nothing for.
  [[nodiscard]] virtual std::vector<std::string> warnings(const ModelDims& dims) const = 0;

 protected:
  explicit Adapter(std::string path) : path_(std::move(path)) {}
  Adapter(const Adapter&) = default;
  Adapter(Adapter&&) = default;
  Adapter& operator=(const Adapter&) = default;
  Adapter& operator=(Adapter&&) = default;

  void check_vocabulary_fits(const ModelDims& dims) const;

  std::string path_, base_model_;
  std::vector<AdapterPair> pairs_;
  VocabularyPart embedding_, head_;
  StoredValues score_, score_bias_;
  std::vector<int32_t> invocation_tokens_;
  TensorCounts num_tensors_;
  std::shared_ptr<MedusaFiles> heads_;
};

}  // namespace heddle::model
