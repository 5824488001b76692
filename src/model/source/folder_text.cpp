#include "model/source/folder_text.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "model/config/setting_types.h"
#include "model/source/read_json.h"
#include "model/source/text/extra_tokens.h"
#include "model/source/text/vocabulary_pair.h"

namespace heddle::model {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kVocabulary = "vocab.json";
constexpr const char* kMergesFile = "merges.txt";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kAddedTokens = "added_tokens.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr const char* kProcessorTemplate = "chat_template.json";
constexpr const char* kMoreTemplates = "additional_chat_templates";

/// A template, or a list of templates with names.
std::map<std::string, std::string> templates_in(const files::Json& value,
                                                const std::string& where) {
  if (value.is_string()) return {{"default", std::string(files::text_of(value))}};
  HEDDLE_CHECK(value.is_array(), where, " is ", files::json_kind(value),
               ", expected a string or a list of templates with names");
  std::map<std::string, std::string> sources;
  for (const files::Json& entry : value.get_array()) {
    const files::Json* const name = files::find_member(entry, "name");
    const files::Json* const source = files::find_member(entry, "template");
    const bool is_named =
        name != nullptr && name->is_string() && source != nullptr && source->is_string();
    HEDDLE_CHECK(is_named, where, " holds ", files::json_kind(entry),
                 ", expected objects of a name and a template");
    sources[std::string(files::text_of(*name))] = files::text_of(*source);
  }
  return sources;
}

}  // namespace

bool FolderText::has_file(const char* name) const {
  std::error_code error;
  return std::filesystem::exists(file(name), error);
}

bool FolderText::has_tokenizer() const {
  if (has_file(kTokenizer) || (has_file(kVocabulary) && has_file(kMergesFile))) return true;
  if (!has_file(kAddedTokens)) return false;
  throw_error(ErrorCode::kUnsupported, file(kAddedTokens), ": adds tokens, and there is no ",
              kTokenizer, "; ", how_to_make_tokenizer_json(folder_));
}

void FolderText::check_types() const {
  for (const char* name : {kTokenizerConfig, kSpecialTokens}) {
    if (!has_file(name)) continue;
    check_setting_types(*read_json(file(name), bounds_), file(name) + ": ",
                        tokenizer_setting_types());
  }
}

std::vector<std::string> FolderText::file_paths() const {
  std::vector<std::string> paths;
  const bool has_json = has_file(kTokenizer);
  for (const char* name : {kTokenizer, kVocabulary, kMergesFile, kAddedTokens, kTokenizerConfig,
                           kSpecialTokens, kChatTemplate, kProcessorTemplate}) {
    const bool is_of_pair = name == kVocabulary || name == kMergesFile;
    if (has_file(name) && !(is_of_pair && has_json)) paths.push_back(file(name));
  }
  for (const auto& [name, path] : template_files()) {
    if (path != file(kChatTemplate)) paths.push_back(path);
  }
  return paths;
}

TokenizerSource FolderText::tokenizer_source() const {
  TokenizerSource source;
  if (has_file(kTokenizer)) {
    source.path = file(kTokenizer);
    source.json = read_text(source.path, bounds_);
  } else {
    HEDDLE_CHECK(has_file(kVocabulary) && has_file(kMergesFile), folder_, ": has no ", kTokenizer,
                 "; ", how_to_make_tokenizer_json(folder_));
    source.path = file(kVocabulary);
    source.json = tokenizer_json_of_pair(folder_, bounds_);
  }
  source.extra = read_extra_tokens(folder_, bounds_);
  return source;
}

tokenizer::Tokenizer FolderText::tokenizer() const { return tokenizer_source().read(); }

std::map<std::string, std::string> FolderText::template_files() const {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> paths;
  if (has_file(kChatTemplate)) paths["default"] = file(kChatTemplate);
  std::error_code error;
  if (!fs::is_directory(file(kMoreTemplates), error)) return paths;
  for (const auto& entry : fs::directory_iterator(file(kMoreTemplates))) {
    if (entry.path().extension() != ".jinja") continue;
    paths[entry.path().stem().string()] = entry.path().string();
  }
  return paths;
}

chat_template::ChatTemplates FolderText::chat_templates() const {
  using chat_template::ChatTemplates;
  std::map<std::string, std::string> sources;
  // As in transformers, where there is any such file tokenizer_config.json does not count.
  for (const auto& [name, path] : template_files()) sources[name] = read_text(path, bounds_);
  if (!sources.empty()) {
    const char* const place = has_file(kChatTemplate) ? kChatTemplate : kMoreTemplates;
    return ChatTemplates::from(sources, file(place));
  }
  // chat_template.json is what processors of models that see images had before.
  for (const char* name : {kTokenizerConfig, kProcessorTemplate}) {
    if (!has_file(name)) continue;
    const auto settings = read_json(file(name), bounds_);
    const files::Json* const found = files::find_member(*settings, "chat_template");
    if (found == nullptr || found->is_null()) continue;
    const std::string where = file(name) + ": chat_template";
    return ChatTemplates::from(templates_in(*found, where), where);
  }
  return {};
}

chat_template::SpecialTokens FolderText::special_tokens() const {
  chat_template::SpecialTokens tokens;
  for (const char* name : {kTokenizerConfig, kSpecialTokens}) {
    if (!has_file(name)) continue;
    const auto settings = read_json(file(name), bounds_);
    for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
      const files::Json* const found = files::find_member(*settings, role);
      if (found == nullptr || tokens.contains(role)) continue;
      // A text, or an object of it and its flags.
      const files::Json* const content = files::find_member(*found, "content");
      const files::Json& value = content == nullptr ? *found : *content;
      if (value.is_string()) tokens[role] = files::text_of(value);
    }
  }
  return tokens;
}

}  // namespace heddle::model
