#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/ops/lora.h"

#include "core/device_graph.h"
#include "core/device_pool.h"
#include "core/digest.h"
#include "engine/runner/loaded_receipt.h"
#include "model/adapters/lora_tables.h"
#include "model/adapters/medusa/medusa_heads.h"
#include "model/decoder/decoder.h"

namespace heddle {

class EngineContext;

/// Where the weights of an adapter are.
enum class AdapterStage : uint8_t {
  kStored,    // in its files; they must be read before they can move to the device
  kReading,   // the read is in flight
  kStaged,    // they can move to the device
  kMoving,    // the copy is in flight; its memory on the device is reserved
  kResident,  // on the device, in a slot
};

/// The slot of an adapter that is resident. A running row holds it, so that the adapter stays.
using WeightsHold = std::shared_ptr<const int32_t>;

/// What the values of an adapter are.
struct AdapterIdentity {
  Digest digest{};                           // AdapterData::digest
  std::shared_ptr<LoadedReceipt> receipt{};  // null: they were not looked at
};

/// The weights of one adapter: kStored where there is nothing but the files, kStaged, kMoving or
/// kResident. A copy in host memory may stay while they are on the device.
struct AdapterData {
  /// What is on the device before it has a slot.
  struct Moving {
    model::LoraTables::Prepared layers;
    model::AdapterVocabularies::Tables vocabulary;
    std::shared_ptr<const model::MedusaHeads> heads{};  // null: it has none, or none are used
    std::shared_ptr<DeviceEvent> arrived{};  // of the copy in flight; null: it is complete
  };

  std::optional<model::LoraTables::HostCopy> host{};
  std::optional<Moving> moving{};
  WeightsHold slot{};  // of kResident
  int max_rank = 0;    // that it takes up in the tables
  Digest digest{};     // of the weights (model::AdapterContents); of kStored zero
  std::shared_ptr<LoadedReceipt> receipt{};  // made with them; null: they were never loaded

  [[nodiscard]] AdapterStage stage() const {
    if (slot != nullptr) return AdapterStage::kResident;
    if (moving) return AdapterStage::kMoving;
    return host ? AdapterStage::kStaged : AdapterStage::kStored;
  }
  void set(const AdapterIdentity& identity) {
    digest = identity.digest;
    receipt = identity.receipt;
  }
  /// To be called after weights were dropped: the files may have others when they are next read.
  void forget_digest_if_stored() noexcept {
    if (stage() == AdapterStage::kStored) digest = {};
  }
};

/// The adapters on the engine's device, in the tables that steps read, and how they come there.
class DeviceAdapters {
 public:
  /// Both outlive it.
  DeviceAdapters(const EngineContext& context, const model::Decoder& model);

  [[nodiscard]] const model::LoadedAdapters& tables() const { return tables_; }

  /// What AdapterData::digest is made with, the process's own at first. It is set before there are
  /// adapters, and outlives this object.
  void set_secret(std::span<const std::byte> secret) { secret_ = secret; }
  [[nodiscard]] std::span<const std::byte> secret() const { return secret_; }

  /// Heads of adapters draft: they come with those that are read from here on. Before there are
  /// adapters.
  void use_heads() { uses_heads_ = true; }
  [[nodiscard]] bool uses_heads() const { return uses_heads_; }
  /// Those of an adapter that is resident; null: it has none.
  [[nodiscard]] const model::MedusaHeads* heads(int32_t slot) const {
    const auto i = static_cast<size_t>(slot);
    return slot < 0 || i >= heads_.size() ? nullptr : heads_[i].get();
  }

  // In any thread, concurrently with steps; the adapter fits the model.

  /// Reads the values of its heads, where they are used.
  void load_heads(const model::Adapter& adapter) const;

  /// Looks at all values; Error(kInvalidArgument) where one is not finite.
  [[nodiscard]] AdapterIdentity identify(const model::Adapter& adapter) const;
  // The identity of what these give is still to be set:
  /// Copies the adapter to the device and waits for that.
  [[nodiscard]] AdapterData prepare(const model::Adapter& adapter) const;
  /// Whether the adapter can be staged: on a GPU, without an embedding, a head and Medusa heads of
  /// its own.
  [[nodiscard]] bool can_stage(const model::Adapter& adapter) const;
  /// The norms of a loaded adapter's receipt; absent where `stop` became true meanwhile.
  [[nodiscard]] std::optional<std::vector<model::PlaceNorms>> measure(
      const model::Adapter& adapter, const std::atomic<bool>& stop) const;
  /// Copies it to host memory from which the device copies: that of `old` where it is as large.
  [[nodiscard]] AdapterData stage(const model::Adapter& adapter, AdapterData old) const;
  /// Bytes that the adapter takes, at most.
  [[nodiscard]] int64_t num_bytes(const model::Adapter& adapter) const;
  /// The setting of an adapter because of which no list but that of itself with scale 1 may have
  /// it; empty: there is none. aLoRA, whose sum begins within a prompt, is not looked at.
  [[nodiscard]] std::string_view runs_alone(const model::Adapter& adapter) const;

  // Between two steps:

  /// Begins the copy of staged weights on a stream of its own, after the steps that may still read
  /// the memory of adapters that were removed. The copy in host memory stays until it is complete.
  void begin_move(AdapterData& adapter);
  /// Gives weights that have arrived a slot. Where it throws, the tables are as they were.
  void add(AdapterData& adapter);
  /// Takes weights that no row uses off the device.
  void remove(AdapterData& adapter) noexcept;

 private:
  [[nodiscard]] int max_rank_of(const model::Adapter& adapter) const;
  [[nodiscard]] std::vector<model::SliceAffine> affines_of(const ExecContext& ctx,
                                                           const model::Adapter& adapter) const;
  [[nodiscard]] std::optional<DType> rounded_to() const;
  [[nodiscard]] const model::MedusaFiles* used_heads(const model::Adapter& adapter) const;

  const EngineContext& context_;
  const model::Decoder& model_;
  mutable model::NormMeter norms_;
  std::span<const std::byte> secret_ = process_secret();
  DevicePool memory_;         // of those that were moved
  DeviceEvent steps_so_far_;  // when the last move was begun
  model::LoadedAdapters tables_;
  bool uses_heads_ = false;
  std::vector<std::shared_ptr<const model::MedusaHeads>> heads_;  // [slot]
};

}  // namespace heddle
