#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "model/adapters/lay_out.h"
#include "model/adapters/slice_affine.h"

namespace heddle::model {

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
  /// sums of several adapters do not depend on the order of loading; empty where no adapter has
  /// weights.
  using Site = std::list<SiteTable>;

  LoraTables(const ModelDims& dims, const LoraForm& form);

  /// An adapter's weights on the device, before they are added to the tables.
  class Prepared {
   public:
    /// Whether it has a factor or an offset at some site.
    [[nodiscard]] bool has_affines() const { return has_affines_; }

   private:
    friend class LoraTables;
    struct Weights {
      int64_t site;               // index_of
      int32_t slice, slot, rank;  // the slice within its site
      float scale;
      ConstTensorView a, b;
      ConstTensorView affine{};  // [1 or 2, out_features] f32, or absent: as SliceAffine has it
    };
    DeviceBytes memory_{};
    std::vector<Weights> weights_{};  // of each slice: where it belongs, and its weights
    bool has_affines_ = false;
    bool is_used_ = false;  // false: the slot is free
  };

  /// An adapter's weights in host memory, as the device will have them.
  class HostCopy {
   public:
    [[nodiscard]] size_t num_bytes() const { return num_bytes_; }
    /// Its memory, for another copy; the object is empty afterwards.
    [[nodiscard]] StagingBytes release() { return std::move(memory_); }

   private:
    friend class LoraTables;
    StagingBytes memory_{};
    size_t num_bytes_ = 0;
    Prepared prepared_{};  // without memory; its addresses are those in memory_
  };

  /// Copies the adapter to the context's device. May run concurrently with all other calls.
  [[nodiscard]] Prepared prepare(const ExecContext& ctx, const Adapter& adapter,
                                 std::span<const SliceAffine> affines = {}) const;
  /// Copies the adapter to host memory from which `place` can copy it. memory(num_bytes) allocates
  /// it. May run concurrently with all other calls.
  [[nodiscard]] HostCopy stage(const ExecContext& ctx, const Adapter& adapter,
                               std::span<const SliceAffine> affines,
                               FunctionRef<StagingBytes(size_t)> memory) const;
  /// Starts a copy to memory of the context's device of as many bytes, in the order of ctx.stream;
  /// both must outlive it.
  [[nodiscard]] static Prepared place(const ExecContext& ctx, const HostCopy& copy,
                                      DeviceBytes memory);
  /// Adds what was prepared; as `add` of the adapter itself.
  int32_t add(const ExecContext& ctx, Prepared prepared);
  /// Copies the adapter to the context's device, the same in every call; it must fit the model
  /// (Adapter::check_fits). `affines`: its slice_affines. Returns its slot. No call that reads the
  /// tables may be in flight. When it throws, for example without memory, the tables are unchanged.
  int32_t add(const ExecContext& ctx, const Adapter& adapter,
              std::span<const SliceAffine> affines = {});
  /// Bytes of the adapter's weights here, without its slice_affines.
  [[nodiscard]] int64_t num_bytes(const Adapter& adapter) const;
  /// Frees the adapter's weights; its slot adds nothing, and the next adapter may get it. No call
  /// that reads the tables may be in flight.
  void remove(const ExecContext& ctx, int32_t slot) noexcept;

  [[nodiscard]] const Site& site(int64_t layer, int site) const;
  /// The table of apply_affines; null where no adapter has had an affine at the site since the
  /// tables were made.
  [[nodiscard]] const AdapterTable* affines(int64_t layer, int site) const;
  /// Whether the adapter of a slot, or of none, has entries in tables of affines.
  [[nodiscard]] bool has_affines(int32_t slot) const {
    return slot >= 0 && adapters_[static_cast<size_t>(slot)].has_affines_;
  }
  [[nodiscard]] int max_rank() const { return tables_.max_rank; }
  /// Grows when addresses of tables or the sites that have one change: recorded calls are stale
  /// then.
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
    std::vector<Site> sites;  // [index_of(layer, site)]
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
  [[nodiscard]] int64_t index_of(int64_t layer, int site) const {
    return layer * dims_.block.num_sites() + site;
  }
  [[nodiscard]] std::vector<int64_t> features(int64_t index, int64_t LinearDims::*which) const;
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
