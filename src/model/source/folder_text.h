#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "chat_template/chat_templates.h"
#include "files/bounded_open.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace heddle::model {

/// A tokenizer.json and what is added to it.
struct TokenizerSource {
  std::string path;  // of the file, or of the one that it was made of
  std::string json;
  std::vector<tokenizer::ExtraToken> extra;

  [[nodiscard]] bool is_same(const TokenizerSource& other) const {
    return json == other.json && extra == other.extra;
  }
  [[nodiscard]] tokenizer::Tokenizer read() const {
    return tokenizer::read_tokenizer_json(json, path, extra);
  }
};

/// What transformers saves of a tokenizer in a folder, of a model or of an adapter: tokenizer.json,
/// or vocab.json and merges.txt, added_tokens.json, tokenizer_config.json, special_tokens_map.json,
/// chat_template.jinja and templates of other names in additional_chat_templates.
class FolderText {
 public:
  /// `bounds`: where its files must lie.
  explicit FolderText(std::string folder, files::FolderBounds bounds = {})
      : folder_(std::move(folder)), bounds_(std::move(bounds)) {}

  /// Error where a setting that is known is of a wrong type.
  void check_types() const;
  /// Those of its files that exist.
  [[nodiscard]] std::vector<std::string> file_paths() const;
  /// Error(kUnsupported) where tokens are added to a tokenizer that is not there.
  [[nodiscard]] bool has_tokenizer() const;
  /// What the tokenizer is made of: tokenizer.json, or vocab.json and merges.txt, and the tokens
  /// that other files add. Folders of equal sources have equal tokenizers.
  [[nodiscard]] TokenizerSource tokenizer_source() const;
  /// Error(kUnsupported) that says how to make a tokenizer.json where the folder has none.
  [[nodiscard]] tokenizer::Tokenizer tokenizer() const;
  /// Empty where there are none.
  [[nodiscard]] chat_template::ChatTemplates chat_templates() const;
  [[nodiscard]] chat_template::SpecialTokens special_tokens() const;

 private:
  [[nodiscard]] std::string file(const char* name) const { return folder_ + "/" + name; }
  [[nodiscard]] bool has_file(const char* name) const;
  /// The templates that are files of their own, by name.
  [[nodiscard]] std::map<std::string, std::string> template_files() const;

  std::string folder_;
  files::FolderBounds bounds_;
};

}  // namespace heddle::model
