#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "chat_template/chat_templates.h"
#include "files/bounded_open.h"
#include "tokenizer/tokenizer.h"

namespace heddle::model {

/// What transformers saves of a tokenizer in a folder, of a model or of an adapter: tokenizer.json,
/// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and templates of other names
/// in additional_chat_templates.
class FolderText {
 public:
  /// `bounds`: where its files must lie.
  explicit FolderText(std::string folder, files::FolderBounds bounds = {})
      : folder_(std::move(folder)), bounds_(std::move(bounds)) {}

  /// The files of it that are there.
  [[nodiscard]] std::vector<std::string> file_paths() const;
  /// Error(kUnsupported) where tokens are added to a tokenizer that is not there.
  [[nodiscard]] bool has_tokenizer() const;
  [[nodiscard]] std::string tokenizer_text() const;
  /// Of at most max_tokens tokens, which `setting` says in the error.
  [[nodiscard]] tokenizer::Tokenizer tokenizer(int64_t max_tokens,
                                               const std::string& setting) const;
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
