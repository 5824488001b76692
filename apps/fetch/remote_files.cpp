#include "fetch/remote_files.h"

#include <algorithm>
#include <regex>

#include "fetch/fetch_error.h"
#include "files/printable.h"

namespace heddle::fetch {
namespace {

constexpr const char* kTexts[] = {
    "tokenizer.json",     "tokenizer_config.json",   "added_tokens.json",
    "vocab.json",         "special_tokens_map.json", "merges.txt",
    "chat_template.json", "chat_template.jinja",
};
constexpr const char* kModelTexts[] = {"config.json", "generation_config.json",
                                       "model.safetensors.index.json"};
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";
constexpr int64_t kMostOfText = int64_t{256} << 20;
constexpr int64_t kMostOfWeights = int64_t{1} << 42;  // 4 TiB

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// A template next to those of tokenizer_config.json.
bool is_more_template(const std::string& name) {
  static const std::regex pattern("additional_chat_templates/[A-Za-z0-9_][A-Za-z0-9._-]*\\.jinja");
  return name.size() < 200 && std::regex_match(name, pattern);
}

bool is_weights(const std::string& name, RepositoryKind kind) {
  static const std::regex shards("model(-[0-9]{5}-of-[0-9]{5})?\\.safetensors");
  if (kind == RepositoryKind::kAdapter) return name == kAdapterWeights;
  return name.size() < 200 && std::regex_match(name, shards);
}

bool is_gguf(const std::string& name) {
  static const std::regex pattern("[A-Za-z0-9_][A-Za-z0-9._-]*\\.gguf");
  return name.size() < 200 && std::regex_match(name, pattern);
}

/// What the repository has in place of the weights that are missing.
std::string instead_of_weights(const RemoteListing& listing) {
  std::string ggufs;
  for (const RemoteFile& file : listing.files) {
    if (file.name.ends_with(".bin") || file.name.ends_with(".pt")) {
      return ", only " + files::printable(file.name) +
             ", a pickle, which may run code when it is opened; save it as safetensors";
    }
    if (is_gguf(file.name)) ggufs += (ggufs.empty() ? "" : ", ") + file.name;
  }
  if (ggufs.empty()) return {};
  return "; choose one of its GGUF files with --file: " + files::printable(ggufs, 400);
}

void check_file(const RemoteListing& listing, const RemoteFile& file, int64_t most) {
  if (file.size < 0 || file.size > most) {
    fail(FetchFault::kWrong, listing.id, ": ", file.name, " is said to have ", file.size,
         " bytes, expected 0 to ", most);
  }
  if (!is_hash(file.hash)) {
    fail(FetchFault::kWrong, listing.id, ": no hash of ", file.name,
         " is told, so it could not be checked");
  }
}

void check_kind(const RemoteListing& listing, RepositoryKind kind,
                const std::vector<RemoteFile>& files) {
  const auto has = [&](const auto& is_it) {
    return std::ranges::any_of(files, is_it, &RemoteFile::name);
  };
  const auto has_weights = [kind](const std::string& name) { return is_weights(name, kind); };
  const std::string config = kind == RepositoryKind::kAdapter ? kAdapterConfig : "config.json";
  const auto is_config = [&](const std::string& name) { return name == config; };
  if (!has(has_weights)) {
    const char* const what =
        kind == RepositoryKind::kAdapter ? kAdapterWeights : "model.safetensors or parts of it";
    fail(FetchFault::kNotFound, listing.id, ": has no ", what, instead_of_weights(listing));
  }
  if (!has(is_config)) fail(FetchFault::kNotFound, listing.id, ": has no ", config);
}

}  // namespace

std::vector<std::string> text_names(RepositoryKind kind) {
  std::vector<std::string> names(std::begin(kTexts), std::end(kTexts));
  if (kind == RepositoryKind::kAdapter) {
    names.emplace_back(kAdapterConfig);
  } else {
    names.insert(names.end(), std::begin(kModelTexts), std::end(kModelTexts));
  }
  return names;
}

std::vector<RemoteFile> wanted_files(const RemoteListing& listing, RepositoryKind kind,
                                     const std::string& gguf) {
  const std::vector<std::string> texts = text_names(kind);
  std::vector<RemoteFile> wanted;
  for (const RemoteFile& file : listing.files) {
    const bool is_text = holds(texts, file.name) || is_more_template(file.name);
    const bool is_wanted = gguf.empty() ? is_text || is_weights(file.name, kind)
                                        : file.name == gguf && is_gguf(file.name);
    if (!is_wanted) continue;
    check_file(listing, file, gguf.empty() && is_text ? kMostOfText : kMostOfWeights);
    const bool is_twice = std::ranges::find(wanted, file.name, &RemoteFile::name) != wanted.end();
    if (is_twice) fail(FetchFault::kWrong, listing.id, ": lists ", file.name, " twice");
    wanted.push_back(file);
  }
  if (gguf.empty()) {
    check_kind(listing, kind, wanted);
  } else if (wanted.empty()) {
    fail(FetchFault::kNotFound, listing.id, ": has no GGUF file ", files::quote(gguf),
         instead_of_weights(listing));
  }
  return wanted;
}

int64_t bytes_of(const std::vector<RemoteFile>& files) {
  int64_t bytes = 0;
  for (const RemoteFile& file : files) bytes += file.size;
  return bytes;
}

bool is_revision(std::string_view text) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return !text.empty() && text.size() <= 200 && std::ranges::all_of(text, is_allowed) &&
         text.front() != '/' && text.front() != '-' && text.back() != '/' &&
         text.find("..") == text.npos && text.find("//") == text.npos;
}

}  // namespace heddle::fetch
