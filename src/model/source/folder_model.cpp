#include "model/source/folder_model.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "heddle/core/error.h"

#include "files/parse_json.h"
#include "model/families/family.h"
#include "model/source/read_json.h"
#include "model/source/settings.h"

namespace heddle::model {
namespace {

constexpr const char* kConfig = "config.json";

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
    if (!is_neutral && !value.is_null() && value != false) unread_.push_back(key);
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
  const auto found = settings_->find("_name_or_path");
  return folder_model_names(
      folder_, found != settings_->end() && found->is_string() ? found->get<std::string>() : "");
}

tokenizer::Tokenizer FolderModel::tokenizer() const {
  return text_.tokenizer(config_.vocab_size, std::string(kConfig) + ": vocab_size");
}

std::vector<int32_t> FolderModel::end_tokens() const {
  // What generation_config.json says counts, as in transformers.
  for (const char* name : {kGenerationConfig, kConfig}) {
    if (!has_file(name)) continue;
    if (auto ids = read_end_token_ids(file(name), config_.vocab_size)) return *ids;
  }
  return {};
}

GenerationConfig FolderModel::generation_config() const {
  if (!has_file(kGenerationConfig)) return {};
  return read_generation_config(file(kGenerationConfig));
}

}  // namespace heddle::model
