#include "ops/attention/decode/launch.h"
#include "ops/attention/device/instances.h"

namespace heddle::cuda::attention::decode {
namespace {

template <class T, class Params>
void launch_of(const Params& p, const Grid& grid, const AttentionLaunch& launch) {
  with_head_dim<T>(grid.dim, [&](auto dim) {
    if constexpr (dim < 256) {
      if constexpr (dim == 128 && std::is_same_v<Params, DecodeLaunchParams>) {
        if (grid.row_tiles == 4) return launch_instance<T, dim, 4>(p, grid.num_blocks, launch);
      }
      if (grid.row_tiles == 2) return launch_instance<T, dim, 2>(p, grid.num_blocks, launch);
    }
    launch_instance<T, dim, 1>(p, grid.num_blocks, launch);
  });
}

}  // namespace

template <class Params>
void launch(const Params& p, const Grid& grid, const AttentionLaunch& launch) {
  if constexpr (std::is_same_v<Params, CodeDecodeParams>) {
    launch_of<float8_e4m3>(p, grid, launch);
  } else if (launch.dtype == DType::kFloat16) {
    launch_of<half>(p, grid, launch);
  } else {
    launch_of<bfloat16>(p, grid, launch);
  }
}
template void launch(const DecodeLaunchParams& p, const Grid& grid, const AttentionLaunch& launch);
template void launch(const RotatingDecodeParams& p, const Grid& grid,
                     const AttentionLaunch& launch);
template void launch(const CodeDecodeParams& p, const Grid& grid, const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::decode
