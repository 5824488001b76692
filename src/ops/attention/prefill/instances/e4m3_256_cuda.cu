#include "ops/attention/prefill/kernel_cuda.h"

namespace heddle::cuda::attention::prefill {

template void launch_instance<half, 256>(const PrefillParams&, const KvScaleParams&, int64_t,
                                         const AttentionLaunch&);
template void launch_instance<bfloat16, 256>(const PrefillParams&, const KvScaleParams&, int64_t,
                                             const AttentionLaunch&);

}  // namespace heddle::cuda::attention::prefill
