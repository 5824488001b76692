#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "fetch/remote_files.h"
#include "fetch/source.h"

namespace heddle::fetch {

struct PullRequest {
  std::string id{};  // ORG/NAME
  std::string revision = "main";
  RepositoryKind kind = RepositoryKind::kModel;
  std::string gguf{};  // the one file to fetch; empty: those of a folder in safetensors
};

struct Pulled {
  std::string path{};  // the folder, or the GGUF file
  std::string version{};
  int64_t num_bytes = 0;  // of its files
  int64_t num_files = 0;
};

/// Told how many bytes of how many have come.
using OnPull = std::function<void(int64_t, int64_t)>;

/// Fetches a repository into the cache of Hugging Face's tools (model::hub_cache_folder), as they
/// write it, so that each finds what the other has fetched: content in blobs/HASH, links to it in
/// snapshots/COMMIT/NAME, and the commit in refs/REVISION, last.
Pulled pull(const Source& source, const PullRequest& request, const std::stop_token& stop,
            const OnPull& on_pull);

}  // namespace heddle::fetch
