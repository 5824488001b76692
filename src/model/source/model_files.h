#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat_template/chat_templates.h"
#include "files/file_stamps.h"
#include "model/config/decoder_config.h"
#include "model/config/embedding_settings.h"
#include "model/config/score_head.h"
#include "model/config/tensor_names.h"
#include "model/config/weight_source.h"
#include "model/model_names.h"
#include "model/source/generation_config.h"
#include "tokenizer/tokenizer.h"

namespace heddle::model {

/// A model as it lies on disk: what an engine needs of it, whatever its format. The defaults are
/// those of a model without files.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  [[nodiscard]] virtual const std::string& path() const = 0;
  /// The files that it consists of.
  [[nodiscard]] virtual std::vector<std::string> file_paths() const { return {}; }
  [[nodiscard]] virtual const DecoderConfig& config() const = 0;
  [[nodiscard]] virtual const WeightSource& weights() const = 0;
  [[nodiscard]] virtual TensorNames tensor_names() const = 0;
  [[nodiscard]] virtual ModelNames names() const { return {}; }
  /// The file that has the settings: config.json, or the GGUF file.
  [[nodiscard]] virtual std::string settings_path() const { return path(); }
  /// The settings that heddle does not know.
  [[nodiscard]] virtual std::vector<std::string> unread_settings() const { return {}; }
  /// Other warnings about the files, in whole sentences.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
  /// Notes for the user about the files, in whole sentences.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }

  [[nodiscard]] virtual tokenizer::Tokenizer tokenizer() const = 0;
  /// Tokens that end an answer: the end of text and, where the files name them, the end of a turn
  /// or message.
  [[nodiscard]] virtual std::vector<int32_t> end_tokens() const { return {}; }
  /// Its defaults for sampling. Throws Error where a value is of a wrong type.
  [[nodiscard]] virtual GenerationConfig generation_config() const { return {}; }
  /// How the model embeds.
  [[nodiscard]] virtual EmbeddingSettings embedding_settings() const { return {}; }
  /// Of a model for sequence classification; null: it has none.
  [[nodiscard]] virtual std::shared_ptr<const ScoreHead> score_head() const { return nullptr; }
  /// What an adapter's score head for so many labels calls them.
  [[nodiscard]] virtual std::vector<std::string> label_names(int64_t num_labels) const {
    return unnamed_labels(num_labels);
  }
  /// Empty where the model has none.
  [[nodiscard]] virtual chat_template::ChatTemplates chat_templates() const { return {}; }
  /// The texts of the tokens that have a role, by the names that templates use.
  [[nodiscard]] virtual chat_template::SpecialTokens special_tokens(
      const tokenizer::Tokenizer& /*tokenizer*/) const {
    return {};
  }

  [[nodiscard]] int64_t num_parameters() const;
  /// Throws Error where a file has changed since the model was opened.
  void check_unchanged() const;

 private:
  friend std::unique_ptr<const ModelFiles> open_model(const std::string& path);

  files::FileStamps stamps_;  // as it was opened
};

/// Opens a GGUF file (of a split one the first part), a folder that transformers saved, or, where
/// there is neither, what the local Hugging Face cache has by that name ("org/model"). Waits until
/// no process has written to its files for files::kSettled.
[[nodiscard]] std::unique_ptr<const ModelFiles> open_model(const std::string& path);

}  // namespace heddle::model
