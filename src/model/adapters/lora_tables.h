#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "model/adapters/adapter.h"
#include "model/adapters/projection.h"
#include "model/adapters/slice_affine.h"

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
  /// One table for each dtype that some adapter has at a site, in the order of the dtypes, so that
  /// sums of several adapters do not depend on who came first; none where no adapter touches it.
  using Site = std::list<SiteTable>;

  LoraTables(const ModelDims& dims, const LoraForm& form);

  /// An adapter's weights on the device, on their way into the tables.
  class Prepared {
   public:
    /// Whether it does more at some site than to add its delta.
    [[nodiscard]] bool has_affines() const { return has_affines_; }

   private:
    friend class LoraTables;
    struct Weights {
      int64_t site;
      int32_t slice, slot, rank;
      float scale;
      ConstTensorView a, b;
      ConstTensorView affine{};  // [1 or 2, out_features] f32, or absent: as SliceAffine has it
    };
    DeviceBytes memory_{};
    std::vector<Weights> weights_{};  // of each slice: where it belongs, and its weights
    bool has_affines_ = false;
    bool is_used_ = false;  // false: the slot is free
  };

  /// The same in host memory, as the device will have it.
  class HostCopy {
   public:
    [[nodiscard]] size_t num_bytes() const { return num_bytes_; }
    /// Its memory, for another copy; nothing else may be done with it then.
    [[nodiscard]] StagingBytes release() { return std::move(memory_); }

   private:
    friend class LoraTables;
    StagingBytes memory_{};
    size_t num_bytes_ = 0;
    Prepared prepared_{};  // without memory; its addresses are those in memory_
  };

  /// Copies the adapter to the context's device. May run beside all other calls.
  [[nodiscard]] Prepared prepare(const ExecContext& ctx, const Adapter& adapter,
                                 std::span<const SliceAffine> affines = {}) const;
  /// Copies the adapter to host memory from which `place` can copy it. memory(num_bytes): gives it.
  /// May run beside all other calls.
  [[nodiscard]] HostCopy stage(const ExecContext& ctx, const Adapter& adapter,
                               std::span<const SliceAffine> affines,
                               FunctionRef<StagingBytes(size_t)> memory) const;
  /// Begins to copy it to memory of the context's device of as many bytes, in the order of
  /// ctx.stream; both stay until that is done.
  [[nodiscard]] static Prepared place(const ExecContext& ctx, const HostCopy& copy,
                                      DeviceBytes memory);
  /// What was prepared, as `add` of the adapter itself.
  int32_t add(const ExecContext& ctx, Prepared prepared);
  /// Copies the adapter to the context's device, the same in every call; it must fit the model
  /// (Adapter::check_fits). `affines`: its slice_affines. Returns its slot. No call that reads the
  /// tables may be at work. Where it throws, as without memory, the tables are those of before.
  int32_t add(const ExecContext& ctx, const Adapter& adapter,
              std::span<const SliceAffine> affines = {});
  /// Bytes of the adapter's weights here, without its slice_affines.
  [[nodiscard]] int64_t num_bytes(const Adapter& adapter) const;
  /// Frees the adapter's weights; its slot touches nothing, and the next adapter may get it. No
  /// call that reads the tables may be at work.
  void remove(const ExecContext& ctx, int32_t slot) noexcept;

  [[nodiscard]] const Site& site(int64_t layer, LoraSite site) const;
  /// The table of apply_affines; null where no adapter did more at the site than to add its delta
  /// since the tables were made.
  [[nodiscard]] const AdapterTable* affines(int64_t layer, LoraSite site) const;
  /// Whether the adapter of a slot, or of none, has entries in tables of affines.
  [[nodiscard]] bool has_affines(int32_t slot) const {
    return slot >= 0 && adapters_[static_cast<size_t>(slot)].has_affines_;
  }
  [[nodiscard]] int max_rank() const { return tables_.max_rank; }
  /// Rises where addresses of tables or the sites that have one change, which recorded calls keep.
  [[nodiscard]] int64_t version() const { return version_; }
  /// Slots that the tables have, used or not.
  [[nodiscard]] int32_t num_slots() const { return tables_.capacity; }
  /// The rank that a pair of this rank takes up in the tables.
  [[nodiscard]] int fitting_rank(int64_t rank) const;

 private:
  using Loaded = Prepared;
  using Weights = Prepared::Weights;

  /// One for each site, null where no adapter has an affine there.
  using AffineTables = std::vector<std::unique_ptr<AdapterTable>>;

  struct Tables {
    std::vector<Site> sites;  // [layer * kNumLoraSites + site]
    AffineTables affines;     // of the same sites
    int32_t capacity = 0;     // slots that each table has
    int32_t max_rank = 0;
  };

  [[nodiscard]] Prepared lay_out(const ExecContext& ctx, const Adapter& adapter,
                                 std::span<const SliceAffine> affines,
                                 FunctionRef<std::byte*(size_t)> memory) const;
  [[nodiscard]] Tables make_tables(const ExecContext& ctx, int32_t max_rank);
  void put(const ExecContext& ctx, const Loaded& adapter);
  void take_out(const ExecContext& ctx, const Loaded& adapter) noexcept;
  void put_affines(const ExecContext& ctx, const Loaded& adapter, Tables& tables,
                   AffineTables& more);
  [[nodiscard]] std::vector<int64_t> out_features(int64_t site) const;
  void add_table(const ExecContext& ctx, Site& to, const Weights& weights,
                 const Tables& size) const;
  static SiteTable* find(Site& site, const Weights& weights);
  void add_changes(const ExecContext& ctx, const SiteTable& table, const Weights& weights);

  ModelDims dims_;
  LoraForm form_;
  std::vector<Loaded> adapters_;  // [slot]
  Tables tables_;
  std::vector<LoraEntryChange> changes_;  // of one adapter
  int64_t version_ = 0;
};

}  // namespace heddle::model
