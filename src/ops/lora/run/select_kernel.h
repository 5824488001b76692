#pragma once

#include <iosfwd>

#include "heddle/core/device.h"

#include "ops/lora/fused/fused_params.h"
#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/grouped/grouped_params.h"

// Which kernels run a call on a GPU: one decision, from numbers alone.
//   describe(ctx, site) -> LoraCall           what a call is; alone looks at addresses and strides
//   select_lora_route(call, info)             how its rows run, once per call
//   select_lora_kernel(call, route, info)     the launches of each part of up to four slices
// A table of calls: test/select_kernel_test.cpp

namespace heddle {

/// How the rows of a call run; all routes have the same bits.
enum class LoraRoute : uint8_t {
  kFused,         // both halves in one launch, of up to 256 rows
  kFusedWindows,  // the same for several windows of 256 rows at once
  kHalves,        // one after the other, of up to 256 rows; or the only half that the call has
  kGrouped,       // all rows grouped by adapter: two or three launches
};

/// Of kHalves.
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

/// The route of up to 256 rows of a call that is taken window by window: kFused where that fits.
[[nodiscard]] LoraRoute select_window_route(const LoraCall& call);

/// The launches of a call of up to four slices, or of such a part of a call, on this route; where
/// is_by_window(route), of up to 256 rows. Throws where work items cannot be counted in 32 bits.
[[nodiscard]] LoraChoice select_lora_kernel(const LoraCall& call, LoraRoute route,
                                            const DeviceInfo& info);

/// Whether a launch of this route takes up to 256 rows, and not all.
[[nodiscard]] constexpr bool is_by_window(LoraRoute route) {
  return route == LoraRoute::kFused || route == LoraRoute::kHalves;
}

}  // namespace heddle
