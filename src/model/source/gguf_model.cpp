#include "model/source/gguf_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/families/family.h"
#include "model/model_text.h"

namespace heddle::model {
namespace {

constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitNo = "split.no";
constexpr int64_t kMaxParts = 99999;

/// Settings of an architecture that say nothing of what the model computes, or what tensors say.
constexpr std::array<std::string_view, 5> kNeutralSettings = {
    "n_deepstack_layers",       // of images
    "rope.dimension_sections",  // text has equal positions in all of them
    "rope.scaling.finetuned", "tensor_data_layout", "vocab_size"};
/// The one setting whose 0 changes what is computed.
constexpr std::string_view kCausal = "attention.causal";

constexpr std::string_view kTokenizerPrefix = "tokenizer.ggml.";
/// What model_text.h reads of these, and what is for other kinds of tokenizers. Tokens that have a
/// role end in "_token_id".
constexpr std::array<std::string_view, 9> kReadTokenizerSettings = {
    "add_bos_token", "add_space_prefix", "merges", "model",           "pre",
    "scores",        "token_type",       "tokens", "token_type_count"};

/// 0, false and nothing, or an array of these.
bool is_off(const files::GgufValue& value) {
  return std::ranges::all_of(value.bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// "-00001-of-00003.gguf"
std::string part_suffix(int64_t part, int64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(part),
                static_cast<long long>(count));
  return text;
}

/// llama.cpp's pooling_type. 0 says nothing of embeddings, as in files of models that write text.
EmbeddingSettings read_embedding(const GgufSettings& settings) {
  constexpr SettingName kPooling{"", "pooling_type"};
  EmbeddingSettings embedding;
  switch (const int64_t type = settings.has(kPooling) ? settings.integer(kPooling) : 0; type) {
    case 0: break;
    case 1: embedding.pooling = Pooling::kMean; break;
    case 2: embedding.pooling = Pooling::kFirst; break;
    case 3: embedding.pooling = Pooling::kLast; break;
    default:
      embedding.unsupported = settings.where(kPooling) + " is " + std::to_string(type) +
                              ", which is not supported; 1 (mean), 2 (cls) and 3 (last) are";
  }
  return embedding;
}

}  // namespace

GgufWeights::GgufWeights(const std::deque<files::GgufFile>& files) : path_(files.front().path()) {
  for (const files::GgufFile& file : files) {
    for (const files::GgufTensor& tensor : file.tensors()) {
      const bool is_new = file_index_.emplace(tensor.name, files_.size()).second;
      HEDDLE_CHECK(is_new, file.path(), ": tensor ", files::quote(tensor.name),
                   " is in an earlier part too");
    }
    files_.push_back(&file);
  }
}

const files::GgufFile& GgufWeights::file_of(std::string_view name) const {
  const auto found = file_index_.find(name);
  return *files_[found == file_index_.end() ? 0 : found->second];
}

bool GgufWeights::contains(std::string_view name) const { return file_index_.contains(name); }

StoredTensor GgufWeights::tensor(std::string_view name) const {
  const files::GgufFile& file = file_of(name);
  const files::GgufTensor& tensor = file.tensor(name);
  return {.name = tensor.name,
          .path = &file.path(),
          .rank = tensor.rank,
          .rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3],
          .columns = tensor.dims[0],
          .type = file.weight_type(tensor),
          .num_bytes = tensor.num_bytes};
}

std::vector<std::string_view> GgufWeights::names() const {
  std::vector<std::string_view> names;
  for (const files::GgufFile* file : files_) {
    for (const files::GgufTensor& tensor : file->tensors()) names.push_back(tensor.name);
  }
  return names;
}

void GgufWeights::read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const {
  const files::GgufFile& file = file_of(tensor.name);
  file.read(file.tensor(tensor.name), first, to);
}

GgufModel::GgufModel(const std::string& path) {
  files_.emplace_back(path);
  open_parts();
  read_settings();
}

GgufModel::GgufModel(std::span<const std::byte> bytes, std::string name) {
  files_.emplace_back(bytes, std::move(name));
  read_settings();
}

void GgufModel::read_settings() {
  weights_.emplace(files_);
  const GgufSettings settings(files_.front());
  config_ = read_gguf_config(settings, *weights_);
  embedding_ = read_embedding(settings);
  for (std::string& key : settings.unread()) {
    const std::string_view name = std::string_view(key).substr(settings.architecture().size() + 1);
    const bool is_neutral = std::ranges::find(kNeutralSettings, name) != kNeutralSettings.end();
    const bool is_usual = is_off(*files_.front().find(key)) != (name == kCausal);
    if (!is_neutral && !is_usual) unread_.push_back(std::move(key));
  }
  for (const files::GgufValue& value : files_.front().metadata()) {
    if (!value.key.starts_with(kTokenizerPrefix) || is_off(value)) continue;
    const std::string_view name = value.key.substr(kTokenizerPrefix.size());
    const bool is_read =
        std::ranges::find(kReadTokenizerSettings, name) != kReadTokenizerSettings.end();
    if (!is_read && !name.ends_with("_token_id")) unread_.emplace_back(value.key);
  }
}

void GgufModel::open_parts() {
  const files::GgufFile& first = files_.front();
  const auto count = first.get_or<int64_t>(kSplitCount, 1);
  if (count <= 1) return;
  HEDDLE_CHECK(count <= kMaxParts, first.path(), ": ", kSplitCount, " is ", count,
               ", expected up to ", kMaxParts);
  const auto number = first.get<int64_t>(kSplitNo);
  HEDDLE_CHECK(number == 0, first.path(), ": is part ", number + 1, " of ", count,
               "; name the model by its first part, whose name ends in ", part_suffix(1, count));
  const std::string suffix = part_suffix(1, count);
  HEDDLE_CHECK(first.path().ends_with(suffix), first.path(), ": is the first of ", count,
               " parts, expected a name that ends in ", suffix);
  const std::string stem = first.path().substr(0, first.path().size() - suffix.size());
  for (int64_t part = 2; part <= count; ++part) {
    files_.emplace_back(stem + part_suffix(part, count));
    const auto said = files_.back().get<int64_t>(kSplitNo);
    HEDDLE_CHECK(said == part - 1, files_.back().path(), ": ", kSplitNo, " is ", said,
                 ", expected ", part - 1);
  }
}

std::vector<std::string> GgufModel::file_paths() const {
  std::vector<std::string> paths;
  for (const files::GgufFile& file : files_) paths.push_back(file.path());
  return paths;
}

ModelNames GgufModel::names() const { return read_model_names(files_.front()); }

tokenizer::Tokenizer GgufModel::tokenizer() const {
  return tokenizer::Tokenizer(read_vocabulary(files_.front()));
}

std::vector<std::string> GgufModel::warnings() const { return read_text_warnings(files_.front()); }

std::vector<std::string> GgufModel::notes() const {
  const std::string architecture(files_.front().get<std::string_view>("general.architecture"));
  if (!architecture.ends_with("vl")) return {};
  return {path() + ": the model takes more than text; only its text half is loaded"};
}

std::vector<int32_t> GgufModel::end_tokens() const { return read_end_tokens(files_.front()); }

GenerationConfig GgufModel::generation_config() const {
  return read_generation_config(files_.front());
}

chat_template::ChatTemplates GgufModel::chat_templates() const {
  return read_chat_templates(files_.front());
}

chat_template::SpecialTokens GgufModel::special_tokens(
    const tokenizer::Tokenizer& tokenizer) const {
  return read_special_tokens(files_.front(), tokenizer);
}

}  // namespace heddle::model
