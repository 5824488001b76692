#include "ops/attention/prefill/kernel_sm90.h"

namespace heddle::cuda::attention::prefill {

template void launch_sm90_instance<half, 64>(const PrefillSm90Params&, const AttentionLaunch&);

}  // namespace heddle::cuda::attention::prefill
