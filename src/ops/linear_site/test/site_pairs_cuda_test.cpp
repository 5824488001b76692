#include "heddle/ops/linear_site.h"

#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/site_pairs_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class T>
class SitePairsCuda : public LoraCuda<T> {};
TYPED_TEST_SUITE(SitePairsCuda, HalfTypes);

SiteShape shape_of(LinearPath path, WeightType type) {
  const bool is_prompt = path == LinearPath::kPrompt;
  return {.rows = is_prompt ? small_or(260, 300) : 20,
          .in = 256,
          .outs = {56, 40},
          .max_rank = 16,
          .has_float_y = random_int(0, 1) == 0,
          .has_bias = true,
          .formats = {type, type},
          .has_rounded_weights = is_prompt};
}

TYPED_TEST(SitePairsCuda, AddAllAdapters) {
  for (const WeightType type : {WeightType::kF32, WeightType::kQ4K}) {
    for (const LinearPath path : kLinearPaths) {
      expect_pairs_add_all_adapters<TypeParam>(shape_of(path, type), this->runs().any(), path);
      if (this->HasFatalFailure()) FAIL() << type << ", path " << int(path);
    }
  }
}

TYPED_TEST(SitePairsCuda, OneHasTheBitsOfAnId) {
  for (const WeightType type : {WeightType::kF32, WeightType::kQ4K}) {
    for (const LinearPath path : kLinearPaths) {
      const LoraRun run = this->runs().any();
      expect_one_pair_has_the_bits_of_an_id<TypeParam>(
          shape_of(path, type), run, path,
          [&](HostSite<TypeParam>& site) { run_aligned(site, run, path, 0, site.shape.rows); });
      if (this->HasFatalFailure()) FAIL() << type << ", path " << int(path);
    }
  }
}

}  // namespace
}  // namespace heddle::testing
