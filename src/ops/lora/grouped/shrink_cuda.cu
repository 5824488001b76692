#include "ops/lora/grouped/shrink_cuda.h"

namespace heddle::cuda {

template <>
void launch_prefill_shrink<bfloat16>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  prefill_shrink::run_any<prefill_shrink::PortableForm, __nv_bfloat16>(p, launch);
}
template <>
void launch_prefill_shrink<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  prefill_shrink::run_any<prefill_shrink::PortableForm, __half>(p, launch);
}

}  // namespace heddle::cuda
