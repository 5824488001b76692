// Who has which bytes of ExecContext::exchange: no two uses may meet. A family that comes to use
// the exchange adds its ranges here.
#include "cuda/exchange.h"

#include <array>
#include <cstddef>
#include <span>

#include "cuda/list_sums_cuda.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "ops/attention/decode/exchange.h"
#include "ops/linear_site/decode/exchange.h"
#include "ops/linear_site/portable/exchange.h"
#include "ops/lora/fused/exchange.h"
#include "ops/speculation/propose_ngram_drafts/propose_ngram_drafts_cuda.h"

namespace heddle::cuda {
namespace {

struct NamedRange {
  const char* name;
  ExchangeRange range;
};
constexpr std::array kRanges{
    NamedRange{"arrivals of lora", lora::kArrivals},
    NamedRange{"signal of x of linear_site", linear_site::kXSignal},
    NamedRange{"counters of tiles of linear_site", linear_site::kTileCounters},
    NamedRange{"sums of lists", kListSums},
    NamedRange{"meetings of n-grams", speculation::kNgramMeetings},
    NamedRange{"counters of decode", attention::kDecodeCounters},
    NamedRange{"partial sums of lora", lora::kPartials},
};

TEST(ExchangeRanges, DoNotOverlap) {
  for (size_t a = 0; a < kRanges.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_FALSE(kRanges[a].range.overlaps(kRanges[b].range))
          << kRanges[a].name << " and " << kRanges[b].name;
    }
  }
}

TEST(ExchangeRanges, FitTheExchangeOfAContextAndAreAligned) {
  for (const auto& [name, range] : kRanges) {
    EXPECT_TRUE(range.fits(CudaContext::kExchangeBytes)) << name;
    EXPECT_EQ(range.begin % 8, 0u) << name;
  }
}

TEST(ExchangeRanges, OverlapIsFound) {
  constexpr ExchangeRange kFirst{0, 8}, kSecond{8, 8}, kBoth{4, 8},
      kRest{12, ExchangeRange::kToTheEnd};
  EXPECT_FALSE(kFirst.overlaps(kSecond) || kSecond.overlaps(kFirst));
  EXPECT_TRUE(kFirst.overlaps(kBoth) && kBoth.overlaps(kFirst));
  EXPECT_TRUE(kBoth.overlaps(kSecond) && kSecond.overlaps(kBoth));
  EXPECT_TRUE(kRest.overlaps(kSecond) && kSecond.overlaps(kRest));
  EXPECT_FALSE(kRest.overlaps(kBoth) || kRest.overlaps(kFirst));
}

TEST(ExchangeRanges, AreNullInAnExchangeThatIsTooSmall) {
  alignas(8) std::array<std::byte, 24> exchange;
  constexpr ExchangeRange kRange{8, 16};
  EXPECT_EQ(kRange.words_in<std::byte>(exchange), exchange.data() + 8);
  EXPECT_EQ(kRange.words_in<std::byte>(std::span(exchange).first(23)), nullptr);
}

}  // namespace
}  // namespace heddle::cuda
