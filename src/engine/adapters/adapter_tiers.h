#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapters/known_adapter.h"
#include "engine/runner/model_runner.h"

namespace heddle {

/// Where the weights of adapters are, and how they move: on a GPU a thread reads them from the file
/// to host memory, from where a copy that overlaps with the steps takes them to the device; on the
/// CPU, and of an adapter with an embedding or a head of its own, a thread reads them from the file
/// to the device's memory. Nothing is written back: what is evicted is dropped. The functions are
/// called between two steps, and none of them waits but `wait`.
class AdapterTiers {
 public:
  struct Limits {
    int64_t memory_bytes;       // of weights on the device
    int64_t host_memory_bytes;  // of copies in host memory
  };
  /// Called when weights have been read, in the thread of the engine. What it throws is their
  /// failure.
  using OnRead = std::function<void(const std::string& path, const AdapterReceipt&)>;
  /// What has happened, and what it took.
  struct Counts {
    int64_t num_uses = 0;       // adapters of rows that started
    int64_t num_loads = 0;      // adapters that became resident
    int64_t num_reads = 0;      // from files
    int64_t num_moves = 0;      // copies from host memory to the device
    int64_t num_evictions = 0;  // from the device
    double seconds = 0;         // of reads and moves, until the step that found them complete
  };
  /// What is given outlives the tiers. is_ending: of who computes norms.
  AdapterTiers(ModelRunner& runner, const model::ModelFiles& files, const Limits& limits,
               const std::atomic<bool>& is_ending, OnRead on_read)
      : runner_(runner),
        files_(files),
        limits_(limits),
        is_ending_(is_ending),
        on_read_(std::move(on_read)) {}
  ~AdapterTiers();
  AdapterTiers(const AdapterTiers&) = delete;
  AdapterTiers& operator=(const AdapterTiers&) = delete;

  /// Reserves memory for so many adapters: the other functions that are noexcept allocate none.
  void reserve(size_t num_adapters);

  /// Completes the reads and moves that have ended. What failed is KnownAdapter::failure. Whether
  /// there were any.
  bool poll() noexcept;
  /// Waits for a read or a move in flight; false: there is none.
  bool wait() noexcept;

  [[nodiscard]] static AdapterStage stage(const KnownAdapter& known);
  /// Begins to read an adapter of kStored where a thread is free and its copy finds room in host
  /// memory, for which copies are dropped that are wanted later than it. A failure as of `poll`.
  void begin_read(KnownAdapter& known) noexcept;
  /// Begins to move an adapter of kStaged to the device, where there is room. False: no thread is
  /// free to read it. A failure as of `poll`.
  bool begin_move(KnownAdapter& known) noexcept;
  /// Whether what is read of it first finds room as things are.
  [[nodiscard]] bool has_room_to_read(const KnownAdapter& known) const;
  /// Makes weights resident that have arrived: DeviceAdapters::prepare.
  void put(KnownAdapter& known);
  /// Takes the weights of an adapter that no row runs with off the device; drops its copy.
  void evict(KnownAdapter& known) noexcept;
  void drop(KnownAdapter& known) noexcept;
  void drop_host_copy(KnownAdapter& known) noexcept;
  /// A row starts with it.
  void use(KnownAdapter& known) noexcept;

  /// Those that are resident or moving; those with a copy in host memory, or a read into it.
  [[nodiscard]] const std::vector<KnownAdapter*>& on_device() const { return device_.adapters; }
  [[nodiscard]] const std::vector<KnownAdapter*>& on_host() const { return host_.adapters; }
  [[nodiscard]] int64_t num_on_device() const;
  [[nodiscard]] int64_t device_bytes() const { return device_.bytes; }
  [[nodiscard]] int64_t host_bytes() const { return host_.bytes; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  /// The adapters that have memory of one kind, and how much.
  struct Tier {
    std::vector<KnownAdapter*> adapters{};
    int64_t bytes = 0;

    void add(KnownAdapter& known) noexcept;
    void remove(KnownAdapter& known) noexcept;
  };

  [[nodiscard]] std::unique_ptr<model::Adapter> load_found(const KnownAdapter& known,
                                                           std::optional<uint64_t> digest) const;
  void read(KnownAdapter& known, AdapterData old);
  [[nodiscard]] LoadedReceipt::Measure measure_again(const KnownAdapter& known,
                                                     const std::string& digest) const;
  [[nodiscard]] bool make_host_room(const KnownAdapter& known, AdapterData& last) noexcept;
  void end(KnownAdapter& known) noexcept;

  ModelRunner& runner_;
  const model::ModelFiles& files_;
  Limits limits_;
  const std::atomic<bool>& is_ending_;
  OnRead on_read_;
  Counts counts_;
  uint64_t num_uses_ = 0;
  Tier device_, host_;
  std::vector<KnownAdapter*> in_flight_;  // reads and moves
  int num_reading_ = 0;
};

}  // namespace heddle
