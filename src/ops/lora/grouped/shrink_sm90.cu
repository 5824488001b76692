#include "ops/lora/grouped/shrink_cuda.h"

namespace heddle::cuda {

template <>
void launch_prefill_shrink_sm90<bfloat16>(const LoraPrefillParams& p,
                                          const LoraPrefillLaunch& launch) {
  prefill_shrink::run_any<prefill_shrink::Sm90Form, __nv_bfloat16>(p, launch);
}
template <>
void launch_prefill_shrink_sm90<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  prefill_shrink::run_any<prefill_shrink::Sm90Form, __half>(p, launch);
}

}  // namespace heddle::cuda
