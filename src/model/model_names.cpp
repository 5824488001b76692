#include "model/model_names.h"

#include <algorithm>
#include <filesystem>

namespace heddle::model {
namespace {

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Letters, in lower case, and digits; bytes above ASCII are kept.
std::string key_of(std::string_view text) {
  std::string key;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') {
      key += static_cast<char>(c - 'A' + 'a');
    } else if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80) {
      key += c;
    }
  }
  return key;
}

/// Words at the end of a copy's name that say how its weights are packed, or who has packed them.
constexpr std::string_view kOfCopies[] = {
    "unsloth", "bnb",  "dynamic", "quantized", "quant", "gguf", "mlx",   "awq",  "gptq",  "hqq",
    "exl2",    "aqlm", "eetq",    "marlin",    "2bit",  "3bit", "4bit",  "5bit", "6bit",  "8bit",
    "int4",    "int8", "fp4",     "nf4",       "nvfp4", "fp8",  "w4a16", "w8a8", "w8a16", "128g"};

bool is_format(std::string_view text);

/// "Llama-3.2-1B-Instruct" of "Llama-3.2-1B-Instruct-unsloth-bnb-4bit": a copy with other weights
/// is the same model.
std::string_view without_copy(std::string_view name) {
  for (;;) {
    const size_t cut = name.find_last_of("-.");
    if (cut == name.npos || cut == 0) return name;
    const std::string last = key_of(name.substr(cut + 1));
    if (std::ranges::find(kOfCopies, last) == std::end(kOfCopies) && !is_format(last)) return name;
    name = name.substr(0, cut);
  }
}

/// The key of a model, whoever has packed it. Meta calls its models both ways: "Meta-Llama-3-8B".
std::string model_key(std::string_view name) {
  constexpr std::string_view kMeta = "meta", kLlama = "metallama";
  std::string key = key_of(without_copy(name));
  if (key.starts_with(kLlama)) key.erase(0, kMeta.size());
  return key;
}

/// Whether a name is that of a model that follows instructions.
bool is_tuned(std::string_view name) {
  while (!name.empty()) {
    const std::string word = key_of(name.substr(0, name.find_first_of("-._ ")));
    if (word == "it" || word == "chat" || word == "instruct") return true;
    name.remove_prefix(std::min(name.size(), name.find_first_of("-._ ")));
    name.remove_prefix(name.empty() ? 0 : 1);
  }
  return false;
}

/// Whether the text is the name of a weights' format: F16, BF16, Q4_1, Q4_K_M, IQ2_XXS, ...
bool is_format(std::string_view text) {
  const std::string key = key_of(text);
  if (key == "f16" || key == "f32" || key == "bf16" || key == "fp16" || key == "fp32") return true;
  const size_t q = key.starts_with("iq") || key.starts_with("tq") ? 1 : 0;
  return key.size() > q + 1 && key[q] == 'q' && is_digit(key[q + 1]);
}

/// "SmolLM2-135M-Instruct" of "dir/SmolLM2-135M-Instruct.Q4_1.gguf".
std::string name_of_file(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  const size_t cut = name.find_last_of(".-");
  if (cut != std::string::npos && is_format(std::string_view(name).substr(cut + 1))) {
    name.resize(cut);
  }
  return name;
}

}  // namespace

bool ModelNames::may_be(std::string_view base_model) const {
  while (base_model.ends_with('/')) base_model.remove_suffix(1);
  std::string_view name = base_model.substr(base_model.find_last_of('/') + 1);
  // A trainer that was given a path of a cache saves that: .../models--ORG--NAME/snapshots/COMMIT
  constexpr std::string_view kSnapshots = "/snapshots";
  const std::string_view above = base_model.substr(0, base_model.size() - name.size());
  if (above.ends_with("/snapshots/")) {
    const std::string_view cache = above.substr(0, above.size() - kSnapshots.size() - 1);
    const std::string_view own = cache.substr(cache.find_last_of('/') + 1);
    if (own.starts_with("models--")) name = own.substr(own.rfind("--") + 2);
  }
  const std::string key = model_key(name);
  if (key.empty()) return true;
  const bool is_of_family = !family.empty() && key.starts_with(family) &&
                            (!follows_instructions || *follows_instructions == is_tuned(name));
  return std::ranges::find(whole, key) != whole.end() || is_of_family;
}

ModelNames read_model_names(const files::GgufFile& file) {
  ModelNames names;
  const auto add = [&names](std::string_view text) {
    if (std::string key = model_key(text); !key.empty()) names.whole.push_back(std::move(key));
  };
  add(name_of_file(file.path()));
  add(file.get_or<std::string_view>("general.name", ""));
  const std::string basename = key_of(file.get_or<std::string_view>("general.basename", ""));
  const std::string size = key_of(file.get_or<std::string_view>("general.size_label", ""));
  if (!basename.empty() && !size.empty()) names.family = basename + size;
  if (names.family.starts_with("metallama")) names.family.erase(0, 4);
  const auto finetune = file.get_or<std::string_view>("general.finetune", "");
  if (!finetune.empty()) names.follows_instructions = is_tuned(finetune);
  return names;
}

ModelNames folder_model_names(const std::string& folder, std::string_view name_or_path) {
  namespace fs = std::filesystem;
  fs::path path = fs::absolute(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::string own = path.filename().string();
  if (path.parent_path().filename() == "snapshots") {  // .../models--ORG--NAME/snapshots/COMMIT
    own = path.parent_path().parent_path().filename().string();
    own.erase(0, own.rfind("--") == own.npos ? 0 : own.rfind("--") + 2);
  }
  ModelNames names;
  while (name_or_path.ends_with('/')) name_or_path.remove_suffix(1);
  for (const std::string_view text :
       {std::string_view(own), name_or_path.substr(name_or_path.find_last_of('/') + 1)}) {
    if (std::string key = model_key(text); !key.empty()) names.whole.push_back(std::move(key));
  }
  return names;
}

}  // namespace heddle::model
