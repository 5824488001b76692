#pragma once

namespace heddle::cuda {

inline constexpr int kWarpSize = 32;
/// The mask of warp operations (__shfl_sync, __ballot_sync, ...) in which all lanes take part.
inline constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace heddle::cuda
