#include "model/source/folder_text.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "files/parse_json.h"
#include "model/source/extra_tokens.h"
#include "model/source/read_json.h"
#include "model/source/setting_types.h"
#include "model/source/vocabulary_pair.h"

namespace heddle::model {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kVocabulary = "vocab.json";
constexpr const char* kMerges = "merges.txt";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kAddedTokens = "added_tokens.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr const char* kMoreTemplates = "additional_chat_templates";

}  // namespace

bool FolderText::has_file(const char* name) const {
  std::error_code error;
  return std::filesystem::exists(file(name), error);
}

bool FolderText::has_tokenizer() const {
  if (has_file(kTokenizer) || (has_file(kVocabulary) && has_file(kMerges))) return true;
  if (!has_file(kAddedTokens)) return false;
  throw_error(ErrorCode::kUnsupported, file(kAddedTokens), ": adds tokens, and there is no ",
              kTokenizer, "; ", how_to_make_tokenizer_json(folder_));
}

void FolderText::check_types() const {
  for (const char* name : {kTokenizerConfig, kSpecialTokens}) {
    if (!has_file(name)) continue;
    check_setting_types(*read_json(file(name)), file(name) + ": ", tokenizer_setting_types());
  }
}

std::vector<std::string> FolderText::file_paths() const {
  std::vector<std::string> paths;
  const bool has_json = has_file(kTokenizer);
  for (const char* name : {kTokenizer, kVocabulary, kMerges, kAddedTokens, kTokenizerConfig,
                           kSpecialTokens, kChatTemplate}) {
    const bool is_of_pair = name == kVocabulary || name == kMerges;
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
    source.json = read_text(source.path);
  } else {
    HEDDLE_CHECK(has_file(kVocabulary) && has_file(kMerges), folder_, ": has no ", kTokenizer, "; ",
                 how_to_make_tokenizer_json(folder_));
    source.path = file(kVocabulary);
    source.json = tokenizer_json_of_pair(folder_);
  }
  source.extra = read_extra_tokens(folder_);
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
  for (const auto& [name, path] : template_files()) sources[name] = read_text(path);
  if (!sources.empty()) {
    const char* const place = has_file(kChatTemplate) ? kChatTemplate : kMoreTemplates;
    return ChatTemplates::from(sources, file(place));
  }
  if (!has_file(kTokenizerConfig)) return {};
  const std::string where = file(kTokenizerConfig) + ": chat_template";
  const auto settings = read_json(file(kTokenizerConfig));
  const auto found = settings->find("chat_template");
  if (found == settings->end() || found->is_null()) return {};
  if (found->is_string()) {
    sources["default"] = found->get<std::string>();
    return ChatTemplates::from(sources, where);
  }
  HEDDLE_CHECK(found->is_array(), where, " is ", files::json_kind(found->type()),
               ", expected a string or a list of templates with names");
  for (const nlohmann::json& entry : *found) {
    const bool is_named = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("template") &&
                          entry["template"].is_string();
    HEDDLE_CHECK(is_named, where, " holds ", files::json_kind(entry.type()),
                 ", expected objects of a name and a template");
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return ChatTemplates::from(sources, where);
}

chat_template::SpecialTokens FolderText::special_tokens() const {
  chat_template::SpecialTokens tokens;
  for (const char* name : {kTokenizerConfig, kSpecialTokens}) {
    if (!has_file(name)) continue;
    const auto settings = read_json(file(name));
    for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
      auto found = settings->find(role);
      if (found == settings->end() || tokens.contains(role)) continue;
      const nlohmann::json* value = &*found;  // a text, or an object of it and its flags
      if (value->is_object() && value->contains("content")) value = &(*value)["content"];
      if (value->is_string()) tokens[role] = value->get<std::string>();
    }
  }
  return tokens;
}

}  // namespace heddle::model
