#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "model/adapters/peft_adapter.h"
#include "model/adapters/projection.h"

namespace heddle::model {

/// The linear layers of a block that share their input form one site; each is a slice of it.
enum class LoraSite : uint8_t { kQkv, kO, kGateUp, kDown };
inline constexpr int kNumLoraSites = 4;

/// How weights of adapters lie in memory for the ops that read them.
struct LoraForm {
  LoraLayout a = LoraLayout::kRankMajor, b = LoraLayout::kRankMinor;
  LoraAlignment fit = LoraAlignment::kNone;
  std::optional<DType> dtype{};  // absent: as the adapter's file has them

  /// What the ops of a device read fastest. On the CPU lanes lie along the rank for A and along the
  /// outputs for B. On CUDA both halves lie as PEFT stores them, fit for loads of vectors, in the
  /// dtype of the activations.
  [[nodiscard]] static LoraForm of(DeviceType device, DType activations);
};

/// The weights of all slots at one site in one dtype.
struct SiteTable {
  SiteTable(const ExecContext& ctx, int32_t num_slots, std::span<const int64_t> in_features,
            std::span<const int64_t> out_features, int32_t max_rank, DType dtype,
            const LoraForm& form)
      : dtype(dtype),
        a(ctx, num_slots, in_features, max_rank, dtype, form.a, form.fit),
        b(ctx, num_slots, out_features, max_rank, dtype, form.b, form.fit) {}

  DType dtype;
  AdapterTable a, b;
};

/// The adapters of a model in memory of one device, in the form that its ops read. A slot is an
/// adapter's number, counted from 0.
class LoraTables {
 public:
  /// One table for each dtype that some adapter has at a site; none where no adapter touches it.
  using Site = std::list<SiteTable>;

  LoraTables(const ModelDims& dims, const LoraForm& form);

  /// Copies the adapter to the context's device, the same in every call; it must fit the model
  /// (PeftAdapter::check_fits). Returns its slot. No call that reads the tables may be at work.
  int32_t add(const ExecContext& ctx, const PeftAdapter& adapter);

  [[nodiscard]] const Site& site(int64_t layer, LoraSite site) const;
  [[nodiscard]] int max_rank() const { return max_rank_; }

 private:
  /// One slice of one adapter: where it belongs, and its weights on the device.
  struct Weights {
    int64_t site;
    int32_t slice, slot, rank;
    float scale;
    ConstTensorView a, b;
  };

  [[nodiscard]] std::vector<Weights> copy(const ExecContext& ctx, const PeftAdapter& adapter);
  void put(const ExecContext& ctx, const Weights& weights);
  SiteTable& table_of(const ExecContext& ctx, int64_t site, DType dtype);

  ModelDims dims_;
  LoraForm form_;
  std::vector<DeviceBytes> memory_;  // of each slot's weights
  std::vector<Weights> weights_;     // of all slots
  std::vector<Site> sites_;          // [layer * kNumLoraSites + site]
  int32_t num_slots_ = 0;
  int32_t capacity_ = 0;  // slots that the tables have
  int32_t max_rank_ = 0;
};

}  // namespace heddle::model
