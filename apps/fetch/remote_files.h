#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fetch/source.h"

namespace heddle::fetch {

enum class RepositoryKind : uint8_t { kModel, kAdapter };

/// Names of texts that heddle reads next to the weights of a model or an adapter, without those in
/// folders.
[[nodiscard]] std::vector<std::string> text_names(RepositoryKind kind);

/// The files of a listing that heddle reads: weights in safetensors and the texts next to them;
/// with `gguf`, the file of that name alone. Pickles, code and all else are left where they are.
/// Throws FetchError where the weights are missing, which says what there is instead, where a name
/// is listed twice, or a size is no size.
[[nodiscard]] std::vector<RemoteFile> wanted_files(const RemoteListing& listing,
                                                   RepositoryKind kind,
                                                   const std::string& gguf = {});

/// Bytes of all files.
[[nodiscard]] int64_t bytes_of(const std::vector<RemoteFile>& files);

/// Whether the text may be a branch, a tag or a commit: "main", "refs/pr/1".
[[nodiscard]] bool is_revision(std::string_view text);

}  // namespace heddle::fetch
