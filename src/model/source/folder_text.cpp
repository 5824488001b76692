#include "model/source/folder_text.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "model/source/read_json.h"
#include "tokenizer/tokenizer_json.h"

namespace heddle::model {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";
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
  if (has_file(kTokenizer)) return true;
  if (!has_file(kAddedTokens)) return false;
  throw_error(ErrorCode::kUnsupported, file(kAddedTokens), ": adds tokens, and there is no ",
              kTokenizer, "; save the tokenizer as a fast one");
}

std::vector<std::string> FolderText::file_paths() const {
  std::vector<std::string> paths;
  for (const char* name : {kTokenizer, kTokenizerConfig, kSpecialTokens, kChatTemplate}) {
    if (has_file(name)) paths.push_back(file(name));
  }
  for (const auto& [name, path] : template_files()) {
    if (path != file(kChatTemplate)) paths.push_back(path);
  }
  return paths;
}

std::string FolderText::tokenizer_text() const { return read_text(file(kTokenizer)); }

tokenizer::Tokenizer FolderText::tokenizer(int64_t max_tokens, const std::string& setting) const {
  const std::string path = file(kTokenizer);
  auto tokenizer = tokenizer::read_tokenizer_json(read_text(path), path);
  HEDDLE_CHECK(tokenizer.vocab_size() <= max_tokens, path, ": has ", tokenizer.vocab_size(),
               " tokens, ", setting, " is ", max_tokens);
  return tokenizer;
}

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
  const files::Json* const found = files::find_member(*settings, "chat_template");
  if (found == nullptr || found->is_null()) return {};
  if (found->is_string()) {
    sources["default"] = files::text_of(*found);
    return ChatTemplates::from(sources, where);
  }
  HEDDLE_CHECK(found->is_array(), where, " is ", files::json_kind(*found),
               ", expected a string or a list of templates with names");
  for (const files::Json& entry : found->get_array()) {
    const files::Json *const name = files::find_member(entry, "name"), *const source =
                                                                           files::find_member(
                                                                               entry, "template");
    const bool is_named =
        name != nullptr && name->is_string() && source != nullptr && source->is_string();
    HEDDLE_CHECK(is_named, where, " holds ", files::json_kind(entry),
                 ", expected objects of a name and a template");
    sources[std::string(files::text_of(*name))] = files::text_of(*source);
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
