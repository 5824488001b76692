#include "model/source/text/vocabulary_pair.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

/// What is around vocabulary and merges. `%` is the value of add_prefix_space.
constexpr std::string_view kGpt2 = R"("normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": %, "trim_offsets": true,
                    "use_regex": true})";
constexpr std::string_view kQwen2 = R"("normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": %, "trim_offsets": true, "use_regex": false}]})";

std::string member_or(const std::string& path, const files::FolderBounds& bounds, const char* key,
                      const std::string& absent) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absent;
  const auto object = read_json(path, bounds);
  const files::Json* const found = files::find_member(*object, key);
  const bool is_text = found != nullptr && found->is_string();
  return is_text ? std::string(files::text_of(*found)) : absent;
}

/// "Qwen2Tokenizer", whatever the folder calls it.
std::string tokenizer_class(const std::string& folder, const files::FolderBounds& bounds) {
  std::string name = member_or(folder + "/tokenizer_config.json", bounds, "tokenizer_class", "");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (!name.empty()) return name;
  const std::string type = member_or(folder + "/config.json", bounds, "model_type", "");
  return type.starts_with("qwen2") || type.starts_with("qwen3") ? "Qwen2Tokenizer" : "";
}

bool adds_prefix_space(const std::string& folder, const files::FolderBounds& bounds) {
  const std::string path = folder + "/tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return false;
  const auto object = read_json(path, bounds);
  const files::Json* const found = files::find_member(*object, "add_prefix_space");
  return found != nullptr && files::is_bool(*found, true);
}

/// The merges as a JSON array; lines are "left right", the first may be "#version: 0.2".
std::string merges_json(const std::string& path, const files::FolderBounds& bounds) {
  const std::string text = read_text(path, bounds);
  std::string list;
  bool is_first = true;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (std::exchange(is_first, false) && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    HEDDLE_CHECK(space != line.npos && line.find(' ', space + 1) == line.npos, path, ": line ",
                 number, " is ", files::quote(line), ", expected two tokens with a space between");
    list += list.empty() ? "" : ",";
    files::append_json_string(list, line);
  }
  return "[" + list + "]";
}

}  // namespace

std::string how_to_make_tokenizer_json(const std::string& folder) {
  return "this makes one: python -c \"import transformers; "
         "transformers.AutoTokenizer.from_pretrained('" +
         folder + "').save_pretrained('" + folder + "')\"";
}

std::string tokenizer_json_of_pair(const std::string& folder, const files::FolderBounds& bounds) {
  const std::string name = tokenizer_class(folder, bounds), vocabulary = folder + "/vocab.json";
  if (name != "Qwen2Tokenizer" && name != "GPT2Tokenizer") {
    throw_error(
        ErrorCode::kUnsupported, folder, ": has vocab.json and merges.txt of a ",
        name.empty() ? "tokenizer without a tokenizer_class" : files::printable(name),
        "; only those of Qwen2Tokenizer and GPT2Tokenizer can be read; with a tokenizer.json "
        "the folder may load, ",
        how_to_make_tokenizer_json(folder));
  }
  std::string around(name == "Qwen2Tokenizer" ? kQwen2 : kGpt2);
  around.replace(around.find('%'), 1, adds_prefix_space(folder, bounds) ? "true" : "false");
  // What both classes have for roles that tokenizer_config.json does not fill.
  const bool has_end =
      files::find_member(*read_json(vocabulary, bounds), "<|endoftext|>") != nullptr;
  const std::string added = has_end ? R"({"id": 0, "content": "<|endoftext|>", "special": true,
      "normalized": false, "lstrip": false, "rstrip": false, "single_word": false})"
                                    : "";
  return R"({"version": "1.0", "added_tokens": [)" + added + "], " + around +
         R"(, "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true,
         "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "vocab": )" +
         read_text(vocabulary, bounds) + R"(, "merges": )" +
         merges_json(folder + "/merges.txt", bounds) + "}}";
}

}  // namespace heddle::model
