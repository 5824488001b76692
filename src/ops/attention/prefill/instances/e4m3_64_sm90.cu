#include "ops/attention/prefill/kernel_sm90.h"

namespace heddle::cuda::attention::prefill {

template void launch_sm90_instance<half, 64>(const CodePrefillSm90Params&, const AttentionLaunch&);
template void launch_sm90_instance<bfloat16, 64>(const CodePrefillSm90Params&,
                                                 const AttentionLaunch&);

}  // namespace heddle::cuda::attention::prefill
