#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "core/digest.h"
#include "files/bounded_open.h"
#include "model/adapters/adapter.h"
#include "model/adapters/merge/merge_tensors.h"
#include "model/source/model_files.h"

namespace heddle {

/// What a merged adapter is made of: adapters that were given in memory, and files, which must have
/// the contents that they had when a request first asked for the merge.
struct MergeRecipe {
  struct Part {
    std::string name;  // that the request gave the adapter
    std::string path;
    files::FolderBounds bounds;
    std::shared_ptr<const model::Adapter> given{};  // in memory; null: the files at `path`
    Digest content{};                               // model::AdapterContents::digest
    float weight = 1.0f;
  };
  std::vector<Part> parts{};
  model::AdapterMergeRule rule{};

  /// "ties of sql and slug": stands for a path in errors.
  [[nodiscard]] std::string name() const;
  /// Two recipes of one digest make the same weights, whatever names and paths they have.
  [[nodiscard]] Digest digest(std::span<const std::byte> secret) const;
};

/// Throws Error unless a list of so many adapters can be merged so.
void check_merge(const AdapterMerge& merge, size_t num_adapters);
/// Of a merge that was checked and is not kLinear.
[[nodiscard]] model::AdapterMergeRule merge_rule(const AdapterMerge& merge);

/// The merged adapter without its values: what it is planned with. Throws Error where it is none.
[[nodiscard]] std::unique_ptr<model::Adapter> open_merge(const MergeRecipe& recipe,
                                                         const model::ModelFiles& files);
/// The merged adapter. Waits while files are being written; throws Error where they have other
/// contents now. The secret is that of MergeRecipe::Part::content.
[[nodiscard]] std::unique_ptr<model::Adapter> load_merge(const MergeRecipe& recipe,
                                                         const model::ModelFiles& files,
                                                         std::span<const std::byte> secret);

}  // namespace heddle
