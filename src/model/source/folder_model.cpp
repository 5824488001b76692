#include "model/source/folder_model.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/families/family.h"
#include "model/source/read_json.h"
#include "model/source/settings.h"

namespace heddle::model {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";

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
    : folder_(folder), text_(folder), settings_(read_json(file(kConfig))), weights_(folder) {
  const JsonSettings settings(*settings_, file(kConfig));
  config_ = read_folder_config(settings, weights_);
  for (const std::string& key : settings.unread()) {
    const auto& value = settings_->at(key);
    const bool is_neutral = std::ranges::find(kNeutralSettings, key) != kNeutralSettings.end();
    if (!is_neutral && !value.is_null() && !files::is_bool(value, false)) unread_.push_back(key);
  }
}

bool FolderModel::has_file(const char* name) const {
  std::error_code error;
  return std::filesystem::exists(file(name), error);
}

std::vector<std::string> FolderModel::file_paths() const {
  std::vector<std::string> paths = weights_.file_paths();
  for (const char* name : {kConfig, kGenerationConfig}) {
    if (has_file(name)) paths.push_back(file(name));
  }
  for (const std::string& path : text_.file_paths()) paths.push_back(path);
  return paths;
}

std::string FolderModel::settings_path() const { return file(kConfig); }

ModelNames FolderModel::names() const {
  const files::Json* const found = files::find_member(*settings_, "_name_or_path");
  const bool is_named = found != nullptr && found->is_string();
  return folder_model_names(folder_, std::string(is_named ? files::text_of(*found) : ""));
}

tokenizer::Tokenizer FolderModel::tokenizer() const {
  return text_.tokenizer(config_.vocab_size, std::string(kConfig) + ": vocab_size");
}

std::vector<int32_t> FolderModel::end_tokens() const {
  // What generation_config.json says counts, as in transformers.
  std::vector<int32_t> ids;
  for (const char* name : {kGenerationConfig, kConfig}) {
    if (!has_file(name)) continue;
    const auto settings = read_json(file(name));
    const files::Json* const found = files::find_member(*settings, "eos_token_id");
    if (found == nullptr || found->is_null()) continue;
    const auto add = [&](const files::Json& entry) {
      const auto id = files::integer_in(entry, 0, config_.vocab_size - 1);
      HEDDLE_CHECK(id, file(name), ": eos_token_id is ", files::printable(files::json_text(*found)),
                   ", expected ids below ", config_.vocab_size);
      const auto value = static_cast<int32_t>(*id);
      if (std::ranges::find(ids, value) == ids.end()) ids.push_back(value);
    };
    if (found->is_array()) {
      for (const files::Json& id : found->get_array()) add(id);
    } else {
      add(*found);
    }
    break;
  }
  return ids;
}

}  // namespace heddle::model
