#include "model/adapters/merge/merged_adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "heddle/core/error.h"

#include "core/throwing_parallel_for.h"
#include "files/printable.h"
#include "model/adapters/load_threads.h"

namespace heddle::model {
namespace {

std::string_view setting_of(const LowRank& pair) {
  if (pair.factor.is_present()) return "IA3";
  if (pair.magnitude.is_present()) return "use_dora";
  if (pair.bias.is_present()) return "lora_bias";
  if (pair.layer_bias.is_present()) return "biases of layers (bias)";
  return {};
}

std::string_view setting_of(const VocabularyPart& part) {
  if (!part.token_ids.empty()) return "trainable_token_indices";
  return part.pair ? setting_of(*part.pair) : std::string_view();
}

const LowRank* pair_of(const VocabularyPart& part) { return part.pair ? &*part.pair : nullptr; }

void check_ranks(const std::string& path, const std::vector<MergePart>& parts,
                 const std::vector<const LowRank*>& pairs) {
  const auto first = static_cast<size_t>(
      std::ranges::find_if(pairs, [](const LowRank* pair) { return pair != nullptr; }) -
      pairs.begin());
  for (size_t i = first + 1; i < pairs.size(); ++i) {
    if (pairs[i] == nullptr) continue;
    HEDDLE_CHECK(pairs[i]->rank == pairs[first]->rank, path, ": tensor ",
                 files::quote(pairs[i]->a_name), " of adapter ", files::quote(parts[i].name),
                 " has rank ", pairs[i]->rank, ", that of ", files::quote(parts[first].name),
                 " has ", pairs[first]->rank, "; a merge needs adapters of one rank");
  }
}

}  // namespace

std::string_view unmerged_setting(const Adapter& adapter) {
  if (!adapter.invocation_tokens().empty()) return "alora_invocation_tokens";
  for (const AdapterPair& pair : adapter.pairs()) {
    if (const std::string_view setting = setting_of(pair); !setting.empty()) return setting;
  }
  const std::string_view of_embedding = setting_of(adapter.embedding());
  return of_embedding.empty() ? setting_of(adapter.head()) : of_embedding;
}

MergedAdapter::MergedAdapter(const std::string& name, std::vector<MergePart> parts,
                             const AdapterMergeRule& rule)
    : Adapter(name), parts_(std::move(parts)), rule_(rule) {
  using Place = std::pair<int64_t, const LinearModule*>;  // in kLinearModules, so in its order
  std::map<Place, std::vector<const LowRank*>> places;
  std::vector<const LowRank*> embeddings, heads;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Adapter& adapter = *parts_[i].adapter;
    const std::string_view setting = unmerged_setting(adapter);
    HEDDLE_CHECK(setting.empty(), path(), ": adapter ", files::quote(parts_[i].name), " has ",
                 setting, ", which a merge cannot have");
    for (const AdapterPair& pair : adapter.pairs()) {
      std::vector<const LowRank*>& pairs = places[{pair.layer, pair.module}];
      pairs.resize(parts_.size());
      pairs[i] = &pair;
    }
    embeddings.push_back(pair_of(adapter.embedding()));
    heads.push_back(pair_of(adapter.head()));
  }
  const auto is_adapted = [](const std::vector<const LowRank*>& pairs) {
    return std::ranges::any_of(pairs, [](const LowRank* pair) { return pair != nullptr; });
  };
  if (is_adapted(embeddings)) embedding_.pair = merged(std::move(embeddings));
  for (auto& [place, pairs] : places) {
    pairs_.push_back({merged(std::move(pairs)), place.first, place.second});
  }
  if (is_adapted(heads)) head_.pair = merged(std::move(heads));
  const int64_t num_tensors = 2 * std::ssize(layers_);
  num_tensors_ = {.given = num_tensors, .applied = num_tensors};
}

/// The layer without its values, for which it reserves memory.
LowRank MergedAdapter::merged(std::vector<const LowRank*> pairs) {
  check_ranks(path(), parts_, pairs);
  const LowRank& one =
      **std::ranges::find_if(pairs, [](const LowRank* pair) { return pair != nullptr; });
  const auto reserve = [&](const StoredValues& half) {
    return files::ReservedBytes(static_cast<size_t>(half.num_elements()) * sizeof(float), path());
  };
  const Layer& layer = layers_.emplace_back(
      Layer{std::move(pairs), reserve(one.stored_a()), reserve(one.stored_b())});
  return {.rank = one.rank,
          .in_features = one.in_features,
          .out_features = one.out_features,
          .scale = 1.0f,
          .a = layer.a.bytes().data(),
          .b = layer.b.bytes().data(),
          .magnitude = {},
          .bias = {},
          .layer_bias = {},
          .a_name = one.a_name,
          .b_name = one.b_name};
}

void MergedAdapter::load() {
  size_t num_bytes = 0;
  for (const Layer& layer : layers_) num_bytes += layer.a.bytes().size() + layer.b.bytes().size();
  ThreadPool threads = load_threads(parts_.size() * num_bytes);
  load(threads);
}

void MergedAdapter::load(ThreadPool& threads) {
  const ExecContext ctx{.threads = &threads};
  throwing_parallel_for(ctx, 2 * std::ssize(layers_), 1, [this](int64_t begin, int64_t end) {
    for (int64_t tensor = begin; tensor < end; ++tensor) merge(static_cast<uint32_t>(tensor));
  });
}

/// A of a layer where the number is even, else B.
void MergedAdapter::merge(uint32_t tensor) {
  Layer& layer = layers_[tensor / 2];
  const bool is_a = tensor % 2 == 0;
  std::vector<WeightedTensor> tensors;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const LowRank* const pair = layer.pairs[i];
    if (pair == nullptr) continue;
    const double weight = static_cast<double>(parts_[i].weight) * pair->scale;
    const double root = std::sqrt(std::abs(weight));
    tensors.push_back({.values = is_a ? pair->stored_a() : pair->stored_b(),
                       .weight = is_a ? std::copysign(root, weight) : root,
                       .place = static_cast<uint32_t>(i)});
  }
  const std::span<std::byte> bytes = (is_a ? layer.a : layer.b).fill(path());
  const std::span floats(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  merge_tensors(floats, tensors, rule_, tensor);
}

void MergedAdapter::check_fits(const ModelDims& dims) const {
  std::map<std::pair<int64_t, int>, const AdapterPair*> of_slice;  // by layer and slice
  for (const AdapterPair& pair : pairs_) {
    const SliceRange slices = dims.block.find(*pair.module);
    for (int i = slices.first; i < slices.first + slices.count; ++i) {
      const auto [other, is_new] = of_slice.emplace(std::pair(pair.layer, i), &pair);
      HEDDLE_CHECK(is_new, path(), ": tensors ", files::quote(other->second->a_name), " and ",
                   files::quote(pair.a_name),
                   " are for the same rows of a layer; a merge needs adapters of the same modules");
    }
  }
}

}  // namespace heddle::model
