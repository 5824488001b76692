#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/json_tree.h"
#include "model/source/folder_text.h"
#include "model/source/folder_weights.h"
#include "model/source/model_files.h"

namespace heddle::model {

/// A model in a folder that transformers saved: config.json, safetensors, tokenizer.json,
/// tokenizer_config.json, and if they exist generation_config.json, chat_template.jinja and
/// templates of other names in additional_chat_templates.
class FolderModel : public ModelFiles {
 public:
  explicit FolderModel(const std::string& folder);

  [[nodiscard]] const std::string& path() const override { return folder_; }
  [[nodiscard]] std::vector<std::string> file_paths() const override;
  [[nodiscard]] const DecoderConfig& config() const override { return config_; }
  [[nodiscard]] const WeightSource& weights() const override { return weights_; }
  [[nodiscard]] TensorNames tensor_names() const override { return names_; }
  [[nodiscard]] ModelNames names() const override;
  [[nodiscard]] std::string settings_path() const override;
  [[nodiscard]] std::vector<std::string> unread_settings() const override { return unread_; }
  [[nodiscard]] std::vector<std::string> warnings() const override { return warnings_; }
  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }
  [[nodiscard]] tokenizer::Tokenizer tokenizer() const override;
  [[nodiscard]] std::vector<int32_t> end_tokens() const override;
  [[nodiscard]] GenerationConfig generation_config() const override;
  [[nodiscard]] EmbeddingSettings embedding_settings() const override { return embedding_; }
  [[nodiscard]] std::shared_ptr<const ScoreHead> score_head() const override { return score_; }
  [[nodiscard]] std::vector<std::string> label_names(int64_t num_labels) const override;
  [[nodiscard]] chat_template::ChatTemplates chat_templates() const override {
    return text_.chat_templates();
  }
  [[nodiscard]] chat_template::SpecialTokens special_tokens(
      const tokenizer::Tokenizer& /*tokenizer*/) const override {
    return text_.special_tokens();
  }

 private:
  [[nodiscard]] std::string file(const char* name) const { return folder_ + "/" + name; }
  [[nodiscard]] bool has_file(const char* name) const;
  void read_config();
  void leave_out_tensors(bool is_text_half);
  void find_head();
  void read_score_head();
  [[nodiscard]] std::vector<float> score_values(const std::string& name, int rank) const;

  std::string folder_;
  FolderText text_;
  files::JsonTree settings_;  // of config.json
  std::optional<GenerationFile> generation_;
  FolderWeights weights_;
  DecoderConfig config_;
  TensorNames names_;
  EmbeddingSettings embedding_;
  std::shared_ptr<const ScoreHead> score_;  // null: it has none
  std::vector<std::string> unread_, warnings_, notes_;
};

}  // namespace heddle::model
