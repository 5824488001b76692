#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "service/fetch_counts.h"
#include "service/tenants.h"

namespace heddle::serve {

/// When a request came to what it is about, seconds since its arrival; below 0: not.
struct RequestTimes {
  double first_token = -1, end = 0;
};

/// A request that has ended, for those that are counted.
struct EndedRequest {
  const char* route = "";
  unsigned status = 200;
  RequestTimes times{};
  std::string adapter{};  // adapter_of; empty: it came to none
  std::string key{};      // the name of its holder; empty: it had none
  int64_t prompt_tokens = 0, answer_tokens = 0;
};

/// What Prometheus reads at /metrics, under the names that vLLM has, and heddle's own. Of the
/// thread of the network.
class Metrics {
 public:
  Metrics(const EngineOptions& options, int64_t num_pages, const std::string& model_name);
  ~Metrics();

  /// A row with this adapter_of has ended.
  void count_answer(const Completion& answer, const std::string& adapter);
  void count_request(const EndedRequest& request);
  void observe_token_gap(double seconds);

  static constexpr size_t kMaxShownRows = 64;

  /// The state of the engine now, and which adapters its requests have.
  struct Now {
    EngineLoad load{};
    EngineStats stats{};
    std::vector<AdapterState> adapters{};  // that the engine knows, by name
    std::vector<RowProgress> rows{};       // the first kMaxShownRows
    int64_t num_waiting = 0, num_running = 0;
    std::string running_adapters{}, waiting_adapters{};  // "cron,sql"
    int64_t num_adapters_in_use = 0;                     // of these
    int64_t num_buffered_bytes = 0, num_given_up = 0;    // of Buffers
    int num_connections = 0;
    FetchCounts fetches{};
    Tenants::Shown tenants{};  // that share the engine

    /// Null: the engine does not know it now.
    [[nodiscard]] const AdapterState* find(const std::string& name) const;
  };
  /// The text of /metrics.
  [[nodiscard]] std::string text(const Now& now);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::serve
