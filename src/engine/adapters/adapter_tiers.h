#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/adapters/adapter_plan.h"
#include "engine/adapters/known_adapter.h"
#include "engine/runner/model_runner.h"

namespace heddle {

/// Where the weights of adapters are, and how they come there: on a GPU from the file to host
/// memory by a thread, from there to the device by a copy beside the steps; on the CPU, and for an
/// adapter with an embedding or a head of its own, from the file to the device's memory by a
/// thread. Nothing is written back: what makes room is dropped. The functions are called between
/// two steps, and none of them waits but `wait`.
class AdapterTiers {
 public:
  struct Limits {
    int64_t memory_bytes;       // of weights on the device
    int64_t host_memory_bytes;  // of copies in host memory
  };
  /// What has happened, and what it took.
  struct Counts {
    int64_t num_uses = 0;       // adapters of rows that started
    int64_t num_loads = 0;      // adapters that came to the device
    int64_t num_reads = 0;      // loads from files
    int64_t num_moves = 0;      // copies from host memory to the device
    int64_t num_evictions = 0;  // from the device
    double seconds = 0;         // of reads and moves, until the step that found them done
  };
  /// What is given outlives the tiers.
  AdapterTiers(ModelRunner& runner, const model::ModelFiles& files, const Limits& limits)
      : runner_(runner), files_(files), limits_(limits) {}
  ~AdapterTiers();
  AdapterTiers(const AdapterTiers&) = delete;
  AdapterTiers& operator=(const AdapterTiers&) = delete;

  /// Room for so many adapters, so that none of the other functions that are noexcept asks for
  /// memory.
  void reserve(size_t num_adapters);

  /// Takes in what is done by now. What failed is KnownAdapter::failure. Whether anything was.
  bool poll() noexcept;
  /// Waits for something that is under way; false: there is nothing.
  bool wait() noexcept;

  [[nodiscard]] AdapterPlace place(const KnownAdapter& known) const;
  /// Begins to read an adapter of kAway where a thread is free and its copy finds room in host
  /// memory; others make room that are wanted later than it. A failure as of `poll`.
  void begin_read(KnownAdapter& known) noexcept;
  /// Begins to bring an adapter of kAtHand to the device, where there is room. False: no thread is
  /// free to read it. A failure as of `poll`.
  bool begin_bring(KnownAdapter& known) noexcept;
  /// Whether what is read of it first finds room as things are.
  [[nodiscard]] bool has_room_to_read(const KnownAdapter& known) const;
  /// Weights that are on the device already.
  void put(KnownAdapter& known, ModelRunner::PreparedAdapter weights);
  /// Takes the weights of an adapter that no row runs with off the device, and forgets its copy.
  void evict(KnownAdapter& known) noexcept;
  void drop(KnownAdapter& known) noexcept;
  void drop_host_copy(KnownAdapter& known) noexcept;
  /// A row starts with it.
  void use(KnownAdapter& known) noexcept;

  /// Those on the device and on their way there; those with a copy in host memory or on the way.
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

  void begin_load(KnownAdapter& known, std::shared_ptr<AdapterHostCopy> old);
  [[nodiscard]] bool make_host_room(const KnownAdapter& known,
                                    std::shared_ptr<AdapterHostCopy>& last) noexcept;
  void end_load(KnownAdapter& known) noexcept;
  void end_move(KnownAdapter& known) noexcept;

  ModelRunner& runner_;
  const model::ModelFiles& files_;
  Limits limits_;
  Counts counts_;
  uint64_t num_uses_ = 0;
  Tier device_, host_;
  std::vector<KnownAdapter*> under_way_;  // loads and moves
  int num_loads_ = 0;                     // that are under way
};

}  // namespace heddle
