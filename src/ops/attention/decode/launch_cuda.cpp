#include "ops/attention/decode/launch.h"

namespace heddle::cuda::attention::decode {
namespace {

template <class T, class Params>
void launch_of(const Params& p, const Grid& grid, const AttentionLaunch& launch) {
  const int blocks = grid.num_blocks;
  const bool is_double = grid.row_tiles == 2;
  if (grid.dim == 256) return launch_instance<T, 256, 1>(p, blocks, launch);
  if (grid.dim == 128) {
    return is_double ? launch_instance<T, 128, 2>(p, blocks, launch)
                     : launch_instance<T, 128, 1>(p, blocks, launch);
  }
  return is_double ? launch_instance<T, 64, 2>(p, blocks, launch)
                   : launch_instance<T, 64, 1>(p, blocks, launch);
}

}  // namespace

template <class Params>
void launch(const Params& p, const Grid& grid, const AttentionLaunch& launch) {
  if (launch.dtype == DType::kFloat16) return launch_of<half>(p, grid, launch);
  launch_of<bfloat16>(p, grid, launch);
}
template void launch(const DecodeLaunchParams& p, const Grid& grid, const AttentionLaunch& launch);
template void launch(const RotatingDecodeParams& p, const Grid& grid,
                     const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::decode
