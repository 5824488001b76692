#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/source/model_files.h"

namespace heddle::model {

/// Tensors that lie in no file. All matrices share one piece of memory, as large as the largest of
/// them: normal numbers of mean 0 and deviation 0.02 in one type, of which about a million are
/// drawn and then come again. Vectors are all 1.
class MadeWeights : public WeightSource {
 public:
  MadeWeights(uint64_t seed, WeightType type) : seed_(seed), type_(type) {}

  void add_vector(std::string name, int64_t size);
  void add_matrix(std::string name, int64_t rows, int64_t columns);
  /// To be called when all have been added.
  void draw();

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] bool contains(std::string_view name) const override;
  [[nodiscard]] StoredTensor tensor(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;
  void read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const override;

 private:
  struct Extents {
    int rank;
    int64_t rows, columns;
  };

  uint64_t seed_;
  WeightType type_;  // of matrices
  std::string path_ = "made";
  std::map<std::string, Extents, std::less<>> tensors_;
  std::vector<std::byte> matrix_;
  std::vector<float> vector_;
};

/// A model that lies in no file, for measurements: no speed depends on what its weights are. Its
/// tokenizer knows one token, or those of a file; tokens that are given as ids may be any of the
/// embedding.
class MadeModel : public ModelFiles {
 public:
  /// config_json: as a config.json of transformers. Throws Error where it is of no family that
  /// heddle has, has fused or biased products, or rows that are no whole blocks of the type, which
  /// is one that `quantize` makes.
  /// vocabulary: a GGUF file, which may have no weights; empty: none.
  MadeModel(std::string_view config_json, uint64_t seed, WeightType type,
            std::string vocabulary = {});

  [[nodiscard]] const std::string& path() const override { return weights_.path(); }
  [[nodiscard]] const DecoderConfig& config() const override { return config_; }
  [[nodiscard]] const WeightSource& weights() const override { return weights_; }
  [[nodiscard]] TensorNames tensor_names() const override { return folder_tensor_names(config_); }
  [[nodiscard]] tokenizer::Tokenizer tokenizer() const override;
  [[nodiscard]] std::vector<int32_t> end_tokens() const override;

 private:
  void add_tensors();

  std::string vocabulary_;

  MadeWeights weights_;
  DecoderConfig config_;
};

}  // namespace heddle::model
