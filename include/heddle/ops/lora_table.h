#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

inline constexpr int kMaxLoraRank = 512;

/// How the two axes of a weight lie in memory. Rank-minor is what the CPU streams fastest; peers
/// store both.
enum class LoraLayout : uint8_t {
  kRankMajor,  // A [rank, in_features], B [rank, out_features]: the other axis is without gaps
  kRankMinor,  // A [in_features, rank], B [out_features, rank]: the rank is without gaps
};

/// The weight of one adapter for one slice. Device-ready: an array of these is the adapter table.
struct LoraWeight {
  const void* data = nullptr;  // nullptr: the adapter does not touch this slice
  int32_t rank = 0;
  float scale = 1.0f;      // read by lora_expand alone
  int64_t row_stride = 0;  // elements between consecutive indices of the outer axis
};

/// The weights of all slots for one half (A or B) of a linear site, in one of three addressings.
/// Kernel-ready.
///
/// Entries: each weight says where it lies; ranks may differ, nothing is padded. Otherwise
/// `entries` is null, there is one slice, every weight has rank max_rank, scale 1 and row_stride,
/// and that of slot s lies at
///   address(s) + element_offset
/// where address(s) is pointers[s * pointer_stride], or stack + s * slot_stride.
/// A null address is an adapter that does not touch the slice. Strides and offsets count elements.
struct LoraTable {
  const LoraWeight* entries = nullptr;  // [num_slots, num_slices], in the memory of `device`
  int32_t num_slots = 0;
  int32_t num_slices = 1;
  int32_t max_rank = 0;  // upper bound of all ranks: sizes grids and workspaces
  DType dtype = DType::kFloat32;
  Device device = {};
  LoraLayout layout = LoraLayout::kRankMajor;
  /// Entries and pointers: whether every weight begins at 16 bytes, has a row_stride of multiples
  /// of them, at most 2^22 elements, and a rank that is a multiple of 4 (up to 16) or 8. CUDA
  /// kernels then load vectors without asking.
  bool is_aligned = false;
  /// [num_slices] in host memory, read by checks alone: in_features or out_features of each slice;
  /// nullptr: not known.
  const int64_t* features = nullptr;

  const int64_t* pointers = nullptr;  // [num_slots], in the memory of `device`
  int64_t pointer_stride = 1;
  const std::byte* stack = nullptr;
  int64_t slot_stride = 0;
  int64_t element_offset = 0;
  int64_t row_stride = 0;

  /// Weights by address, as Punica's w_ptr: pointers [num_slots] i64, each the start of one
  /// adapter's page [num_layers, rank, features] (kRankMajor) or [num_layers, features, rank]
  /// (kRankMinor) without gaps; layer_idx picks the layer. features: in_features of A, out_features
  /// of B. So a weight [layers, out, in] of dispatch_bgmv or sgmv_shrink is A kRankMajor (rank =
  /// out) or B kRankMinor (rank = in), and one [layers, in, out] of sgmv_cutlass is A kRankMinor or
  /// B kRankMajor. Ops take ranks up to kMaxLoraRank; lora_shrink can take a larger one in parts,
  /// by columns of y: set max_rank to the part's and move element_offset to its first rank.
  [[nodiscard]] static LoraTable from_pointers(ConstTensorView pointers, DType dtype,
                                               LoraLayout layout, int64_t rank, int64_t features,
                                               int64_t layer_idx = 0);

  /// Weights of one tensor [num_slots, rank, features] (kRankMajor) or [num_slots, features, rank]
  /// (kRankMinor); last axis without gaps.
  [[nodiscard]] static LoraTable from_stack(ConstTensorView weights, LoraLayout layout);

  /// The weight of a slot for a slice; both in range. Reads the table: only where its memory can be
  /// read.
  [[nodiscard]] LoraWeight weight(int64_t slot, int64_t slice) const;
};

/// An entry of an AdapterTable and what it becomes.
struct LoraEntryChange {
  LoraWeight* entry;
  LoraWeight value;
};

/// Which weights an AdapterTable takes.
enum class LoraAlignment : uint8_t {
  kNone,
  /// Weights that begin at 16 bytes, with rows multiples of 16 bytes and at most 2^22 elements
  /// apart, and a rank that is a multiple of 4 up to 16, of 8 above: CUDA kernels load them in
  /// vectors, without asking each (LoraTable::is_aligned). One that does not fit is refused. Copied
  /// to a place of its own it fits, with both halves' rank filled up with zeros where that is what
  /// lacks.
  k16Bytes,
};

/// Owns the entries of a LoraTable, in the memory of one device; the weights stay the caller's and
/// must outlive their place in the table: on CUDA until all work that was given to the device
/// before they left it is done. Not for several threads at a time.
///
/// On CUDA set and clear are work of ctx.stream, one small kernel each: what the stream runs before
/// sees the old entry, what it runs after, launches and replays of graphs alike, sees the new one,
/// and nothing sees half an entry. Work of other streams must be ordered by events. They wait for
/// nothing, allocate nothing, and are captured by a capture of the stream.
class AdapterTable {
 public:
  /// A table without adapters, on ctx.device. features [num_slices]: in_features for A,
  /// out_features for B, of each slice.
  AdapterTable(const ExecContext& ctx, int32_t num_slots, std::span<const int64_t> features,
               int32_t max_rank, DType dtype, LoraLayout layout,
               LoraAlignment fit = LoraAlignment::kNone);

  /// What a copy of a weight needs to fit: the rank up to which zeros fill both halves, and the
  /// elements from one row to the next.
  [[nodiscard]] static int64_t fitting_rank(int64_t rank, LoraAlignment fit);
  [[nodiscard]] static int64_t fitting_row_stride(int64_t row_elements, DType dtype,
                                                  LoraAlignment fit);

  /// Puts the weight of one slice of an adapter into its slot:
  ///   weight [rank, features[slice]] (kRankMajor) or [features[slice], rank] (kRankMinor), of the
  ///   table's dtype and device, rank 1 to max_rank; last axis without gaps, rows of any stride
  ///   that `fit` takes
  /// Calls made before on ctx.stream see the old table, those made after see the new one.
  void set(const ExecContext& ctx, int32_t slot, int32_t slice, ConstTensorView weight,
           float scale = 1.0f);

  /// Takes an adapter out: its slot touches nothing. Ordered as set.
  void clear(const ExecContext& ctx, int32_t slot);

  /// What `set` would change, for `apply`. Throws what it throws.
  [[nodiscard]] LoraEntryChange change(const ExecContext& ctx, int32_t slot, int32_t slice,
                                       ConstTensorView weight, float scale = 1.0f) const;
  /// The change that takes one slice of an adapter out.
  [[nodiscard]] LoraEntryChange change_to_none(const ExecContext& ctx, int32_t slot,
                                               int32_t slice) const;
  /// Makes changes of any tables of the context's device, each entry once. Ordered as set: on CUDA
  /// a small kernel for every hundred of them.
  static void apply(const ExecContext& ctx, std::span<const LoraEntryChange> changes);

  /// The table for calls. Stays valid, and at the same addresses, as long as this object lives in
  /// its place; it sees every later set and clear, so a captured graph does, too.
  [[nodiscard]] LoraTable view() const;

  AdapterTable(const AdapterTable&) = delete;
  AdapterTable& operator=(const AdapterTable&) = delete;

 private:
  struct FreeEntries {
    Device device;
    size_t bytes;
    void operator()(LoraWeight* entries) const noexcept;
  };
  void check_slot(const ExecContext& ctx, int32_t slot) const;
  void check_slice(int32_t slice) const;
  void check_fit(const ConstTensorView& weight, int64_t rank) const;
  /// Entries [first, first + count) become `value`, in the order of ctx.stream.
  void write_entries(const ExecContext& ctx, int64_t first, int64_t count, const LoraWeight& value);

  Device device_;
  int32_t num_slots_, max_rank_;
  DType dtype_;
  LoraLayout layout_;
  LoraAlignment fit_;
  std::vector<int64_t> features_;
  std::unique_ptr<LoraWeight[], FreeEntries> entries_;  // [num_slots, num_slices] on device_
};

}  // namespace heddle
