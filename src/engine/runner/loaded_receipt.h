#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/adapter_receipt.h"

#include "model/adapters/adapter.h"
#include "model/adapters/receipt/adapter_norms.h"

namespace heddle {

/// What a receipt says of a loaded adapter at once; its norms are absent. digest: its fingerprint.
[[nodiscard]] AdapterReceipt receipt_of(const model::Adapter& adapter, std::string digest);

/// The receipt of weights that were loaded, and how its norms are computed when they are first
/// asked for. For any thread.
class LoadedReceipt {
 public:
  /// The norms of its sites, in their order; absent where the engine ends meanwhile. May throw.
  using Measure = std::function<std::optional<std::vector<model::PlaceNorms>>()>;

  explicit LoadedReceipt(AdapterReceipt receipt) : facts_(std::move(receipt)), now_(facts_) {}

  /// Before other threads have it.
  void measure_by(Measure measure) { measure_ = std::move(measure); }
  /// Without norms.
  [[nodiscard]] const AdapterReceipt& facts() const { return facts_; }
  /// With the norms if they have been computed.
  [[nodiscard]] AdapterReceipt now() const;
  /// Computes the norms, or waits until another thread has. Where that throws, a later call tries
  /// again.
  [[nodiscard]] AdapterReceipt measured();

 private:
  const AdapterReceipt facts_;
  std::mutex measuring_;  // while they are computed
  Measure measure_;       // empty: they were, or cannot be
  mutable std::mutex mutex_;
  AdapterReceipt now_;
};

}  // namespace heddle
