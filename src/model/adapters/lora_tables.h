#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/ops/lora.h"

#include "model/adapters/peft_adapter.h"
#include "model/adapters/projection.h"

namespace heddle::model {

/// The linear layers of a block that share their input form one site; each is a slice of it.
enum class LoraSite : uint8_t { kQkv, kO, kGateUp, kDown };
inline constexpr int kNumLoraSites = 4;

/// The weights of all slots at one site in one dtype.
struct SiteTable {
  LoraTable a, b;
};

/// The adapters of a model in memory, repacked for the CPU: lanes along the rank for A, along the
/// outputs for B. A slot is an adapter's number, counted from 0.
class LoraTables {
 public:
  explicit LoraTables(const ModelDims& dims);

  /// Copies the adapter; it must fit the model (PeftAdapter::check_fits). Returns its slot.
  int32_t add(const PeftAdapter& adapter);

  /// One table for each dtype that some adapter has at this site; none where no adapter touches it.
  [[nodiscard]] std::span<const SiteTable> site(int64_t layer, LoraSite site) const;
  [[nodiscard]] int max_rank() const { return max_rank_; }
  [[nodiscard]] int32_t num_slots() const { return num_slots_; }
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }

 private:
  /// All entries of one site and dtype; [slot * num_slices + slice].
  struct Entries {
    DType dtype;
    std::vector<LoraWeight> a, b;
  };
  struct Site {
    std::vector<Entries> by_dtype;
    std::vector<SiteTable> tables;
  };

  Entries& entries_of(Site& site, int num_slices, DType dtype);
  const void* keep_transposed(const std::byte* source, int64_t rows, int64_t columns, DType dtype);

  std::vector<Site> sites_;  // [layer * kNumLoraSites + site]
  std::vector<std::vector<std::byte>> buffers_;
  int max_rank_ = 0;
  int32_t num_slots_ = 0;
  size_t num_bytes_ = 0;
};

}  // namespace heddle::model
