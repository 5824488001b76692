#include "ops/lora_device/grouped/shrink_kernel_cuda.h"

namespace heddle::cuda::lora {

template <>
void launch_grouped_shrink<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_shrink::launch_instance<grouped_shrink::PortableForm, __nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_shrink<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_shrink::launch_instance<grouped_shrink::PortableForm, __half>(p, launch);
}

}  // namespace heddle::cuda::lora
