#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "heddle/core/thread_pool.h"

#include "core/device_graph.h"

namespace heddle {

/// CUDA graphs of decode steps.
class StepGraphs {
 public:
  /// What the calls of a step depend on: sequences, padded; whether any has an adapter; whether one
  /// of these has affines.
  using Key = std::tuple<int64_t, bool, bool>;

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
