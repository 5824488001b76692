#pragma once

#include <deque>
#include <optional>
#include <span>
#include <unordered_map>

#include "files/gguf.h"
#include "model/source/model_files.h"

namespace heddle::model {

/// The tensors of a model's GGUF files, which outlive the object.
class GgufWeights : public WeightSource {
 public:
  /// The first file is the one that the model is named after. A tensor that two files have is an
  /// error.
  explicit GgufWeights(const std::deque<files::GgufFile>& files);

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] bool contains(std::string_view name) const override;
  [[nodiscard]] StoredTensor tensor(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;
  void read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const override;

 private:
  [[nodiscard]] const files::GgufFile& file_of(std::string_view name) const;

  std::string path_;
  std::deque<const files::GgufFile*> files_;
  std::unordered_map<std::string_view, size_t> file_index_;  // by tensor
};

/// A model in GGUF: one file, or the parts that llama.cpp's gguf-split makes of one.
class GgufModel : public ModelFiles {
 public:
  /// `path`: the file, or the first of the parts.
  explicit GgufModel(const std::string& path);
  /// From memory that outlives the object; `name` stands for the path in errors.
  GgufModel(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& path() const override { return files_.front().path(); }
  [[nodiscard]] std::vector<std::string> file_paths() const override;
  [[nodiscard]] const DecoderConfig& config() const override { return config_; }
  [[nodiscard]] const WeightSource& weights() const override { return *weights_; }
  [[nodiscard]] TensorNames tensor_names() const override { return gguf_tensor_names(config_); }
  [[nodiscard]] ModelNames names() const override;
  [[nodiscard]] std::vector<std::string> unread_settings() const override { return unread_; }
  [[nodiscard]] std::vector<std::string> warnings() const override;
  [[nodiscard]] std::vector<std::string> notes() const override;
  [[nodiscard]] tokenizer::Tokenizer tokenizer() const override;
  [[nodiscard]] std::vector<int32_t> end_tokens() const override;
  [[nodiscard]] GenerationConfig generation_config() const override;
  [[nodiscard]] EmbeddingSettings embedding_settings() const override { return embedding_; }
  [[nodiscard]] chat_template::ChatTemplates chat_templates() const override;
  [[nodiscard]] chat_template::SpecialTokens special_tokens(
      const tokenizer::Tokenizer& tokenizer) const override;

 private:
  void open_parts();
  void read_settings();

  std::deque<files::GgufFile> files_;  // of which none moves
  std::optional<GgufWeights> weights_;
  DecoderConfig config_;
  EmbeddingSettings embedding_;
  std::vector<std::string> unread_;
};

}  // namespace heddle::model
