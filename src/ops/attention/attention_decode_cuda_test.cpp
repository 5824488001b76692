// batch_decode on a GPU: the bodies of the CPU's tests.
#include <vector>

#include "ops/attention/attention_bits_cases.h"
#include "ops/attention/attention_cuda_cases.h"

namespace heddle::testing {
namespace {

template <class T>
class AttentionDecodeCuda : public AttentionCuda<T> {};
TYPED_TEST_SUITE(AttentionDecodeCuda, HalfTypes);

TYPED_TEST(AttentionDecodeCuda, AgreesWithTheDefinition) {
  for (const bool any : {false, true}) {
    this->expect_agreement({.prefill = false, .decode = true, .any_head_dim = any, .longest = 300},
                           250);
  }
}

TYPED_TEST(AttentionDecodeCuda, ARowAloneIsTheRowInABatch) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = true, .run = &run};
  expect_a_row_alone_is_the_row_in_a_batch<TypeParam>(setting, {setting, setting});
}

TYPED_TEST(AttentionDecodeCuda, PagesDoNotShow) {
  const AttentionRun run = this->run();
  expect_pages_do_not_show<TypeParam>({.decode = true, .run = &run});
}

}  // namespace
}  // namespace heddle::testing
