#pragma once

#include <iosfwd>
#include <optional>

#include "heddle/core/device.h"

#include "ops/lora/device/params.h"
#include "ops/lora/grouped/grouped_params.h"

// Which kernels run a call on a GPU: one decision, from numbers alone.
//   describe(ctx, site) -> LoraCall    what a call is; alone looks at addresses and strides
//   select_lora_kernel(call, info)     what runs it; a table of calls: test/select_kernel_test.cpp

namespace heddle {

enum class LoraHalves : uint8_t { kBoth, kShrink, kExpand };

/// How the rows of a call run; all routes have the same bits.
enum class LoraRoute : uint8_t {
  kFused,         // both halves in one launch, of up to 256 rows
  kFusedWindows,  // the same for several windows of 256 rows at once
  kTwoLaunches,   // one after the other, of up to 256 rows; or the only half that the call has
  kGrouped,       // all rows grouped by adapter: two or three launches
};

struct LoraCall {
  LoraHalves halves = LoraHalves::kBoth;
  int num_slices = 1, num_slots = 1;
  int max_rank = 0;   // of the tables: sizes plans and partial sums
  int used_rank = 0;  // that both tables reach, and y or h where it is a tensor
  int64_t tokens = 0;
  int64_t input_features = 0;  // columns of x, or of h
  int64_t num_outputs = 0;     // columns of y of all slices
  /// Work items of the last half for one row tile, of all slices: 256 outputs each, or 128 ranks of
  /// lora_shrink.
  int64_t output_items = 0;
  bool input_vectors = false;  // x can be loaded 16 bytes at a time
  /// Tables of entries, A in rows of features and B in rows of ranks, y of the weights' dtype.
  bool entries = false;
  bool vectors = false;    // so can x, A and B, and y 4 elements at a time
  bool y_vectors = false;  // rows of y, and of B, are whole vectors of 16 bytes
  bool int32_strides = true;
  int64_t exchange_bytes = 0;
  /// The route to take, where that is settled; kFused falls back to kTwoLaunches where the exchange
  /// is too small.
  std::optional<LoraRoute> route = {};

  [[nodiscard]] int num_chunks() const;
  friend std::ostream& operator<<(std::ostream& out, const LoraCall& call);
};

/// Of kTwoLaunches.
struct HalvesLaunch {
  bool is_aligned = false;
  int shrink_blocks = 0, expand_blocks = 0;
  friend bool operator==(const HalvesLaunch&, const HalvesLaunch&) = default;
};

/// The route, and how its kernels are launched; of the launches, that of the route is filled in.
struct LoraChoice {
  LoraRoute route = LoraRoute::kFused;
  bool is_general = false;  // of kFused and kFusedWindows: the kernel that takes everything
  cuda::lora::FusedLaunch fused{};
  HalvesLaunch halves{};
  cuda::lora::GroupedConfig grouped{};

  friend bool operator==(const LoraChoice&, const LoraChoice&) = default;
  friend std::ostream& operator<<(std::ostream& out, const LoraChoice& choice);
};

/// The route of a call of any number of rows and slices.
[[nodiscard]] LoraRoute select_lora_route(const LoraCall& call, const DeviceInfo& info);

/// The route and launches of a call of up to four slices; unless all rows are taken at once, of up
/// to 256 rows. Larger calls are cut into such, whose `route` is that of all. Throws where work
/// items cannot be counted in 32 bits.
[[nodiscard]] LoraChoice select_lora_kernel(const LoraCall& call, const DeviceInfo& info);

/// Whether a launch of this route takes up to 256 rows, and not all.
[[nodiscard]] constexpr bool is_by_window(LoraRoute route) {
  return route == LoraRoute::kFused || route == LoraRoute::kTwoLaunches;
}

/// f32 values that the partial sums of one row of a launch take, whatever its adapter is.
[[nodiscard]] int64_t partials_of_row(int64_t in_features, int64_t num_slices, int64_t max_rank);

}  // namespace heddle
