#include "ops/lora/grouped/shrink_cuda.h"

namespace heddle::cuda {
namespace {

template <class T>
void run_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  using namespace prefill_shrink;
  launch.config.shrink_tiles == 1 ? run<AnyForm, T, 1, true>(p, launch)
                                  : run<AnyForm, T, 2, true>(p, launch);
}

}  // namespace

template <>
void launch_prefill_shrink_any<bfloat16>(const LoraPrefillParams& p,
                                         const LoraPrefillLaunch& launch) {
  run_any<__nv_bfloat16>(p, launch);
}
template <>
void launch_prefill_shrink_any<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  run_any<__half>(p, launch);
}

}  // namespace heddle::cuda
