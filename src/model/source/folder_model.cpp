#include "model/source/folder_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"
#include "model/config/setting_types.h"
#include "model/families/family.h"
#include "model/source/embedding_files.h"
#include "model/source/label_settings.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

constexpr const char* kConfig = "config.json";

constexpr std::string_view kTextConfig = "text_config.";
constexpr size_t kComparedBytes = size_t{1} << 20;

bool is_of_other_half(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return std::ranges::any_of(kOtherHalves, [&](auto prefix) { return name.starts_with(prefix); });
}

/// The number after the prefix, or -1: 3 in "model.layers.3.mlp.up_proj.weight".
int64_t layer_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

/// Whether both have the same bytes, read piece by piece.
bool are_equal(const WeightSource& source, const StoredTensor& a, const StoredTensor& b) {
  if (a.type != b.type || a.rank != b.rank || a.rows != b.rows || a.columns != b.columns) {
    return false;
  }
  std::vector<std::byte> of_a, of_b;
  for (size_t first = 0; first < a.num_bytes; first += kComparedBytes) {
    const size_t size = std::min(kComparedBytes, a.num_bytes - first);
    of_a.resize(size);
    of_b.resize(size);
    source.read(a, first, of_a);
    source.read(b, first, of_b);
    if (of_a != of_b) return false;
  }
  return true;
}

/// Error that says what a folder without config.json may be.
files::JsonTree read_model_config(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(folder + "/" + kConfig, error)) return read_json(folder + "/" + kConfig);
  std::string names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".gguf") continue;
    names += (names.empty() ? "" : ", ") + files::printable(entry.path().filename().string());
  }
  HEDDLE_CHECK(names.empty(), folder, ": has no ", kConfig,
               " but has GGUF files; name one of them instead of the folder: ",
               files::printable(names, 400));
  HEDDLE_CHECK(!fs::exists(folder + "/adapter_config.json", error), folder,
               ": is the folder of an adapter, expected that of the model that it was made for");
  throw_error(ErrorCode::kInvalidArgument, folder, ": has no ", kConfig,
              ", expected a folder that transformers saved, or a GGUF file");
}

/// "3 tensors, the first \"v_head.summary.weight\"".
std::string shown(const std::vector<std::string>& names) {
  return std::to_string(names.size()) + (names.size() == 1 ? " tensor, " : " tensors, the first ") +
         files::quote(names.front());
}

}  // namespace

FolderModel::FolderModel(const std::string& folder)
    : folder_(folder), text_(folder), settings_(read_model_config(folder)), weights_(folder) {
  check_config_types(*settings_, file(kConfig));
  text_.check_types();
  if (has_file(kGenerationConfig)) generation_.emplace(file(kGenerationConfig));
  embedding_ = read_embedding_settings(folder);
  read_config();
  find_head();
}

void FolderModel::read_config() {
  FolderConfig read = read_folder_config(*settings_, file(kConfig), weights_);
  config_ = std::move(read.decoder);
  names_ = folder_tensor_names(config_, weights_);
  if (read.head == FolderHead::kScore) read_score_head();
  for (std::string& key : read.unread) {
    const bool is_nested = key.starts_with(kTextConfig);
    const std::string name = is_nested ? key.substr(kTextConfig.size()) : key;
    const auto& value = is_nested ? settings_->at("text_config").at(name) : settings_->at(name);
    if (is_neutral_setting(name) || value.is_null() || files::is_bool(value, false)) continue;
    unread_.push_back(std::move(key));
  }
  for (std::string& key : unknown_rope_settings(*settings_)) unread_.push_back(std::move(key));
  leave_out_tensors(read.is_text_half);
}

/// Tensors that no decoder has: of the image and audio parts, of heads that only training uses, of
/// layers past the last one. Others that have no place are refused when the weights are loaded.
void FolderModel::leave_out_tensors(bool is_text_half) {
  std::vector<std::string> other_half, outside, past_the_last;
  for (const std::string_view name : weights_.names()) {
    const bool is_inside = name.starts_with(names_.decoder_prefix) || name == names_.output;
    if (is_text_half && is_of_other_half(name)) {
      other_half.emplace_back(name);
    } else if (!is_inside) {
      outside.emplace_back(name);
    } else if (layer_of(name, names_.layer_prefix) >= config_.num_layers) {
      past_the_last.emplace_back(name);
    }
  }
  for (const auto* names : {&other_half, &outside, &past_the_last}) {
    for (const std::string& name : *names) weights_.leave_out(name);
  }
  if (is_text_half) {
    notes_.push_back(folder_ + ": the model takes more than text; only its text half is loaded" +
                     (other_half.empty() ? "" : ", without " + shown(other_half)));
  }
  if (!outside.empty()) {
    warnings_.push_back(weights_.path() + ": " + shown(outside) + ", not loaded: not part of a " +
                        config_.family + " model");
  }
  if (!past_the_last.empty()) {
    warnings_.push_back(weights_.path() + ": " + shown(past_the_last) +
                        ", of layers past the last, not loaded: num_hidden_layers of " +
                        file(kConfig) + " is " + std::to_string(config_.num_layers));
  }
  std::vector<std::string> missing = weights_.missing();
  std::erase_if(missing, [&](const std::string& name) {
    return name.ends_with(names_.ignored_suffix) || (is_text_half && is_of_other_half(name));
  });
  if (!missing.empty()) {
    warnings_.push_back(weights_.path() + ": lists " + shown(missing) + ", which no file has");
  }
}

/// Takes the head of a model for sequence classification, which is none of the decoder's tensors.
void FolderModel::read_score_head() {
  const std::string name = "score.weight", bias_name = "score.bias";
  const StoredTensor stored = weights_.tensor(name);
  const int64_t hidden_size = config_.hidden_size, num_labels = stored.rows;
  HEDDLE_CHECK(
      stored.rank == 2 && stored.columns == hidden_size && num_labels <= ScoreHead::kMaxLabels,
      *stored.path, ": tensor ", files::quote(name), " is [", num_labels, ", ", stored.columns,
      "] of rank ", stored.rank, ", expected [up to ", ScoreHead::kMaxLabels, ", ", hidden_size,
      "]");
  std::vector<float> bias;
  if (weights_.contains(bias_name)) bias = score_values(bias_name, 1);
  HEDDLE_CHECK(bias.empty() || std::ssize(bias) == num_labels, weights_.path(), ": tensor ",
               files::quote(bias_name), " has ", bias.size(), " values, expected ", num_labels);
  score_ = std::make_shared<const ScoreHead>(
      score_values(name, 2), std::move(bias), label_names(num_labels),
      score_activation(*settings_, num_labels, file(kConfig)));
  weights_.leave_out(name);
  weights_.leave_out(bias_name);
}

std::vector<float> FolderModel::score_values(const std::string& name, int rank) const {
  const StoredTensor stored = weights_.tensor(name);
  HEDDLE_CHECK(stored.rank == rank, *stored.path, ": tensor ", files::quote(name), " has rank ",
               stored.rank, ", expected ", rank);
  std::vector<std::byte> bytes(stored.num_bytes);
  weights_.read(stored, 0, bytes);
  std::vector<float> values(static_cast<size_t>(stored.rows * stored.columns));
  dequantize(values, stored.type, bytes);
  const auto wrong = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  const int64_t at = wrong - values.begin();
  HEDDLE_CHECK(wrong == values.end(), *stored.path, ": tensor ", files::quote(name), " has ",
               std::isnan(*wrong) ? "NaN" : "infinity", " at [", at / stored.columns, ", ",
               at % stored.columns, "]; a training that diverged leaves such values");
  return values;
}

std::vector<std::string> FolderModel::label_names(int64_t num_labels) const {
  return read_labels(*settings_, num_labels, file(kConfig));
}

/// Which tensors are embedding and head of a model that ties them: the one that exists, or both
/// where they differ, as in transformers.
void FolderModel::find_head() {
  if (!config_.has_head || !config_.tied_head || !weights_.contains(names_.output)) return;
  if (!weights_.contains(names_.embedding)) {
    names_.embedding = names_.output;
    return;
  }
  if (are_equal(weights_, weights_.tensor(names_.embedding), weights_.tensor(names_.output))) {
    return;
  }
  config_.tied_head = false;
  if (files::find_member(*settings_, "tie_word_embeddings") == nullptr) return;
  warnings_.push_back(file(kConfig) + ": tie_word_embeddings is true, yet " + weights_.path() +
                      " has " + files::quote(names_.output) + " that differs from " +
                      files::quote(names_.embedding) + "; both are used as they are");
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
  for (const std::string& path : embedding_files(folder_)) paths.push_back(path);
  return paths;
}

std::string FolderModel::settings_path() const { return file(kConfig); }

ModelNames FolderModel::names() const {
  const files::Json* const found = files::find_member(*settings_, "_name_or_path");
  const bool is_named = found != nullptr && found->is_string();
  return folder_model_names(folder_, std::string(is_named ? files::text_of(*found) : ""));
}

tokenizer::Tokenizer FolderModel::tokenizer() const { return text_.tokenizer(); }

std::vector<int32_t> FolderModel::end_tokens() const {
  // generation_config.json takes precedence, as in transformers.
  if (generation_) {
    if (auto ids = generation_->end_tokens(config_.vocab_size)) return *ids;
  }
  return end_token_ids(*settings_, file(kConfig), config_.vocab_size)
      .value_or(std::vector<int32_t>());
}

GenerationConfig FolderModel::generation_config() const {
  return generation_ ? generation_->config() : GenerationConfig{};
}

}  // namespace heddle::model
