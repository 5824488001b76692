#include "model/source/folder_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "heddle/core/error.h"

#include "files/parse_json.h"
#include "files/printable.h"
#include "model/families/family.h"
#include "model/source/read_json.h"
#include "model/source/settings.h"
#include "tokenizer/tokenizer_json.h"

namespace heddle::model {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr const char* kMoreTemplates = "additional_chat_templates";

/// Keys of config.json that say nothing of what the model computes, or what is said elsewhere.
constexpr std::array kNeutralSettings = {"_attn_implementation_autoset",
                                         "_name_or_path",
                                         "_sliding_window_pattern",  // layer_types say it
                                         "architectures",
                                         "attention_dropout",
                                         "auto_map",
                                         "bos_token_id",
                                         "cache_implementation",
                                         "chunk_size_feed_forward",
                                         "dtype",
                                         "embd_pdrop",
                                         "eos_token_id",
                                         "id2label",
                                         "initializer_range",
                                         "is_encoder_decoder",
                                         "label2id",
                                         "model_type",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "pad_token_id",
                                         "pretraining_tp",
                                         "problem_type",
                                         "resid_pdrop",
                                         "return_dict",
                                         "torch_dtype",
                                         "transformers_version",
                                         "unsloth_fixed",
                                         "unsloth_version",
                                         "use_cache"};

}  // namespace

FolderModel::FolderModel(const std::string& folder)
    : folder_(folder), settings_(read_json(file(kConfig))), weights_(folder) {
  const JsonSettings settings(*settings_, file(kConfig));
  config_ = read_folder_config(settings, weights_);
  for (const std::string& key : settings.unread()) {
    const auto& value = settings_->at(key);
    const bool is_neutral = std::ranges::find(kNeutralSettings, key) != kNeutralSettings.end();
    if (!is_neutral && !value.is_null() && value != false) unread_.push_back(key);
  }
}

bool FolderModel::has_file(const char* name) const {
  std::error_code error;
  return std::filesystem::exists(file(name), error);
}

std::vector<std::string> FolderModel::file_paths() const {
  std::vector<std::string> paths = weights_.file_paths();
  for (const char* name :
       {kConfig, kGenerationConfig, kTokenizer, kTokenizerConfig, kSpecialTokens, kChatTemplate}) {
    if (has_file(name)) paths.push_back(file(name));
  }
  for (const auto& [name, path] : template_files()) {
    if (path != file(kChatTemplate)) paths.push_back(path);
  }
  return paths;
}

std::string FolderModel::settings_path() const { return file(kConfig); }

ModelNames FolderModel::names() const {
  const auto found = settings_->find("_name_or_path");
  return folder_model_names(
      folder_, found != settings_->end() && found->is_string() ? found->get<std::string>() : "");
}

tokenizer::Tokenizer FolderModel::tokenizer() const {
  const std::string path = file(kTokenizer);
  auto tokenizer = tokenizer::read_tokenizer_json(read_text(path), path);
  HEDDLE_CHECK(tokenizer.vocab_size() <= config_.vocab_size, path, ": has ", tokenizer.vocab_size(),
               " tokens, ", kConfig, ": vocab_size is ", config_.vocab_size);
  return tokenizer;
}

std::vector<int32_t> FolderModel::end_tokens() const {
  // What generation_config.json says counts, as in transformers.
  std::vector<int32_t> ids;
  for (const char* name : {kGenerationConfig, kConfig}) {
    if (!has_file(name)) continue;
    const auto settings = read_json(file(name));
    const auto found = settings->find("eos_token_id");
    if (found == settings->end() || found->is_null()) continue;
    const auto add = [&](const nlohmann::json& id) {
      HEDDLE_CHECK(id.is_number_integer() && id.get<int64_t>() >= 0 &&
                       id.get<int64_t>() < config_.vocab_size,
                   file(name), ": eos_token_id is ", files::printable(found->dump()),
                   ", expected ids below ", config_.vocab_size);
      const auto value = id.get<int32_t>();
      if (std::ranges::find(ids, value) == ids.end()) ids.push_back(value);
    };
    if (found->is_array()) {
      for (const nlohmann::json& id : *found) add(id);
    } else {
      add(*found);
    }
    break;
  }
  return ids;
}

std::map<std::string, std::string> FolderModel::template_files() const {
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

chat_template::ChatTemplates FolderModel::chat_templates() const {
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

chat_template::SpecialTokens FolderModel::special_tokens(const tokenizer::Tokenizer&) const {
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
