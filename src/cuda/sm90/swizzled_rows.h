#pragma once

namespace heddle::cuda {

/// Bytes of a row as tensor copies lay it down in shared memory and products of warpgroups read it:
/// 64 elements of 16 bits.
inline constexpr int kSwizzledRowBytes = 128;

}  // namespace heddle::cuda
