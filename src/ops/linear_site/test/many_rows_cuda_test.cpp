#include <cstdint>
#include <vector>

#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

const int64_t kMaxRows = small_or(1030, 65536);

template <class T>
class ManyRowsCuda : public LoraCuda<T> {};
TYPED_TEST_SUITE(ManyRowsCuda, HalfTypes);

template <class T>
void set_rows(HostSite<T>& site, int64_t rows) {
  site.shape.rows = rows;
  site.x_stride = site.shape.in;
  site.x = random_normal<T>(size_t(rows * site.shape.in));
  std::vector<int> slots(static_cast<size_t>(rows));
  for (int& slot : slots) slot = static_cast<int>(random_int(-1, HostSite<T>::kNumSlots - 1));
  site.set_batch(slots, random_normal<float>(size_t(rows)));
  site.clear();
}

template <class T>
void expect_rows_have_the_bits_of_each_alone(HostSite<T>& site, const LoraRun& run,
                                             LinearPath path) {
  const int64_t rows = site.shape.rows;
  run_aligned(site, run, path, 0, rows);
  ASSERT_FALSE(site.has_nan());
  const HostSite<T> all = site;
  for (const int64_t row : {int64_t{0}, int64_t{127}, int64_t{128}, random_int(256, rows - 256),
                            rows / 2 - 1, rows / 2, rows - 1}) {
    site.clear();
    run_aligned(site, run, path, row, 1);
    ASSERT_EQ(site.bits(row), all.bits(row)) << "row " << row;
  }
}

TYPED_TEST(ManyRowsCuda, HaveTheBitsOfEachAlone) {
  for (const WeightType type : {WeightType::kF32, WeightType::kQ4_0}) {
    for (const LinearPath path : kLinearPaths) {
      for (const int max_rank : {0, 16}) {
        HostSite<TypeParam> site(
            {.rows = 1, .in = 64, .outs = {48}, .max_rank = max_rank, .formats = {type}});
        set_rows(site, kMaxRows);
        const LoraRun run =
            this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
        expect_rows_have_the_bits_of_each_alone(site, run, path);
        if (this->HasFatalFailure()) {
          FAIL() << type << ", path " << int(path) << ", max_rank " << max_rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::testing
