#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "files/reserved_bytes.h"
#include "model/adapters/adapter.h"
#include "model/adapters/merge/merge_tensors.h"

namespace heddle::model {

/// An adapter of a merge, which fits the model, and its factor.
struct MergePart {
  std::string name;                        // in errors
  std::shared_ptr<const Adapter> adapter;  // shared: one that was given in memory, by all merges
  float weight = 1.0f;
};

/// The setting of an adapter because of which it cannot be merged, as merges take A and B alone;
/// empty: there is none. An embedding or a head of its own is not looked at, as it may be the base
/// model's; a merge has none.
[[nodiscard]] std::string_view unmerged_setting(const Adapter& adapter);

/// Several adapters as one of scale 1, merged as PEFT's add_weighted_adapter merges them: each
/// tensor by itself, of those adapters that have its layer. With s = weight * scale of a layer, the
/// weight of A is sqrt(|s|) with the sign of s, that of B sqrt(|s|). Values are f32.
class MergedAdapter final : public Adapter {
 public:
  /// `name` stands for a path in errors. Error(kInvalidArgument) where a part cannot be merged, and
  /// where two have another rank at a layer.
  MergedAdapter(const std::string& name, std::vector<MergePart> parts,
                const AdapterMergeRule& rule);

  /// Merges the parts, whose values are loaded and finite.
  void load() override;
  /// The same on the given threads; no bit depends on how many.
  void load(ThreadPool& threads);
  /// Error(kInvalidArgument) where parts have fused and single layers for the same rows.
  void check_fits(const ModelDims& dims) const override;
  [[nodiscard]] std::vector<std::string> warnings(const ModelDims& /*dims*/) const override {
    return {};
  }

 private:
  /// One layer of the merge: what the parts have there, and where its halves come.
  struct Layer {
    std::vector<const LowRank*> pairs;  // [num_parts], null where a part has none
    files::ReservedBytes a, b;
  };

  [[nodiscard]] LowRank merged(std::vector<const LowRank*> pairs);
  void merge(uint32_t tensor);

  std::vector<MergePart> parts_;
  AdapterMergeRule rule_;
  std::vector<Layer> layers_;  // embedding, pairs, head
};

}  // namespace heddle::model
