#include "engine/runner/step_graphs.h"

#include <chrono>

namespace heddle {

void StepGraphs::run(const ExecContext& ctx, const Key& key, int64_t version,
                     FunctionRef<void()> calls) {
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

}  // namespace heddle
