#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>

#include "heddle/core/thread_pool.h"

#include "core/device_graph.h"

namespace heddle {

/// CUDA graphs of decode steps, up to the logits.
class StepGraphs {
 public:
  /// What the calls of a step depend on, besides the model.
  struct Key {
    int64_t num_seqs;                 // padded
    int64_t max_pairs;                // adapters of a token, where a row has a list of them; else 0
    int64_t num_bundles, max_bundle;  // padded, of a step that has drafts; else 0 and 1
    bool any_adapter, any_affine;
    bool has_vocabularies;  // whether a row has an embedding or a head of its own
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// All graphs are invalid: memory that they read lies elsewhere now.
  void clear() { graphs_.clear(); }
  /// Runs the calls of a step. The first step of a kind runs as it is, which also loads the
  /// kernels; the second is recorded. `version` of the adapters' tables: graphs of others are
  /// invalid.
  void run(const ExecContext& ctx, const Key& key, int64_t version, FunctionRef<void()> calls) {
    if (version_ != version) clear();
    version_ = version;
    const auto [place, is_first] = graphs_.try_emplace(key);
    if (is_first) return calls();
    std::optional<DeviceGraph>& graph = place->second;
    if (!graph) {
      const auto begin = std::chrono::steady_clock::now();
      graph.emplace(ctx, calls);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      seconds_ += taken.count();
      ++num_recorded_;
    }
    graph->launch(ctx);
  }

  [[nodiscard]] int64_t num_recorded() const { return num_recorded_; }
  /// That recording took.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  std::map<Key, std::optional<DeviceGraph>> graphs_;  // absent: run once, not recorded yet
  int64_t version_ = 0, num_recorded_ = 0;
  double seconds_ = 0;
};

}  // namespace heddle
