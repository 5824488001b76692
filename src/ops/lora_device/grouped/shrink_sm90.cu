#include "ops/lora_device/grouped/shrink_kernel_cuda.h"

namespace heddle::cuda::lora {

template <>
void launch_grouped_shrink_sm90<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_shrink::launch_instance<grouped_shrink::Sm90Form, __nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_shrink_sm90<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_shrink::launch_instance<grouped_shrink::Sm90Form, __half>(p, launch);
}

}  // namespace heddle::cuda::lora
