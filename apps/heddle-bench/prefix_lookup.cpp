// What finding the pages of a request costs: PrefixCache alone, without an engine.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/core/error.h"

#include "core/digest.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_cache.h"
#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Json = PrefixBench::Json;

constexpr int64_t kNumPages = 100'000, kPageSize = 16, kVocabulary = 128'256;
constexpr int kAdapters = 8;
constexpr int kLookups = 100;  // for each of --samples
// Tokens of a chain: 2^8 to 2^15.2, so that some are a little longer than the longest request.
constexpr double kLeastLog = 8, kMostLog = 15.2;
constexpr int64_t kLengths[] = {2048, 4096, 32768};
constexpr int64_t kNothing = 4096;                // tokens of a request that is not found
constexpr size_t kOtherBytes = size_t{64} << 20;  // touched before each lookup

/// How often the system took the processor from this thread.
int64_t num_interruptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

/// What a sequence had, and left in the cache.
struct Chain {
  std::vector<int32_t> tokens;
  Digest adapters{};
};

PrefixKey key_of(const Chain& chain, int64_t num_tokens) {
  return {.tokens = std::span(chain.tokens).first(static_cast<size_t>(num_tokens)),
          .adapters = chain.adapters,
          .acts_from = chain.adapters == Digest{} ? std::numeric_limits<int64_t>::max() : 0};
}

class LookupBench {
 public:
  explicit LookupBench(PrefixBench& bench) : bench_(bench), other_(kOtherBytes / sizeof(int64_t)) {
    // Twice as many pages as there are: entries by then lie as evictions have left them.
    for (int64_t num_pages = 0; num_pages < 2 * kNumPages;) {
      chains_.push_back(next_chain());
      num_pages += run(chains_.back());
    }
    HEDDLE_CHECK(cache_.num_entries() == kNumPages, "the cache has ", cache_.num_entries(),
                 " pages");
  }

  void found(int64_t num_tokens) {
    std::vector<const Chain*> whole;  // those that still are in the cache
    for (const Chain& chain : chains_) {
      if (std::ssize(chain.tokens) < num_tokens) continue;
      if (find(key_of(chain, num_tokens)) == num_tokens / kPageSize) whole.push_back(&chain);
    }
    HEDDLE_CHECK(!whole.empty(), "the cache has no chain of ", num_tokens, " tokens");
    measure("lookup_" + std::to_string(num_tokens), num_tokens, num_tokens / kPageSize, [&] {
      std::uniform_int_distribution<size_t> choose(0, whole.size() - 1);
      return *whole[choose(bench_.random())];
    });
  }

  void nothing() {
    measure("lookup_nothing", kNothing, 0, [&] {
      return Chain{bench_.tokens(kVocabulary, kNothing), digest_of(1)};
    });
  }

 private:
  static Digest digest_of(int adapter) {
    return adapter == 0 ? Digest{} : Hasher().add(int64_t{adapter}).digest();
  }

  /// Half of them go on from the beginning of an earlier one.
  Chain next_chain() {
    std::uniform_real_distribution<double> length(kLeastLog, kMostLog);
    std::uniform_int_distribution<int> adapter(0, kAdapters);
    const auto num_tokens = static_cast<int64_t>(std::exp2(length(bench_.random())));
    Chain chain{{}, digest_of(adapter(bench_.random()))};
    if (!chains_.empty() && bench_.random()() % 2 == 0) {
      chain = chains_[bench_.random()() % chains_.size()];
      chain.tokens.resize(1 + bench_.random()() % chain.tokens.size());
    }
    const auto num_shared = std::min(std::ssize(chain.tokens), num_tokens);
    chain.tokens.resize(static_cast<size_t>(num_shared));
    std::ranges::copy(bench_.tokens(kVocabulary, num_tokens - num_shared),
                      std::back_inserter(chain.tokens));
    return chain;
  }

  /// The pages that the cache has of a sequence; found_ has them.
  int64_t find(const PrefixKey& key) {
    const int64_t num_pages = std::ssize(key.tokens) / kPageSize;
    found_.clear();
    PrefixPlace place = cache_.begin();
    while (place.num_pages < num_pages) {
      const auto [found, page] = cache_.find(place, key);
      if (found != PrefixCache::Found::kPage) break;
      found_.push_back(page);
    }
    return std::ssize(found_);
  }

  /// Takes a sequence from its beginning to its end, as the engine does. Its new pages.
  int64_t run(const Chain& chain) {
    const PrefixKey key = key_of(chain, std::ssize(chain.tokens));
    const int64_t num_pages = std::ssize(chain.tokens) / kPageSize;
    PrefixPlace place = cache_.begin();
    found_.clear();
    while (place.num_pages < num_pages) {
      const auto [found, page] = cache_.find(place, key);
      if (found != PrefixCache::Found::kPage) break;
      found_.push_back(page);
    }
    ReservedPages pages = pool_.reserve(num_pages, found_).value();
    cache_.claim(place, key);
    pages.grow_to(num_pages);
    for (int64_t i = std::ssize(found_); i < num_pages; ++i) {
      const PageId own = pages.ids()[static_cast<size_t>(i)];
      HEDDLE_CHECK(cache_.add(place, key, own) == own, "a page of the chain was there already");
    }
    return num_pages - std::ssize(found_);
  }

  template <class Choose>
  void measure(const std::string& name, int64_t num_tokens, int64_t num_found, Choose choose) {
    Figure figure{name, "us", {}};
    const auto num_samples = size_t{kLookups} * static_cast<size_t>(bench_.options().num_samples);
    int64_t num_interrupted = 0;
    while (figure.samples.size() < num_samples) {
      const Chain chain = choose();
      const PrefixKey key = key_of(chain, num_tokens);
      for (int64_t& each : other_) ++each;
      benchmark::DoNotOptimize(other_.data());
      const int64_t before = num_interruptions();
      const auto begin = PrefixBench::Clock::now();
      const int64_t num_pages = find(key);
      const double us = 1e3 * PrefixBench::ms_since(begin);
      if (num_interruptions() == before) {
        figure.samples.push_back(us);
      } else {
        ++num_interrupted;
      }
      HEDDLE_CHECK(num_pages == num_found, "the cache has ", num_pages, " pages, expected ",
                   num_found);
    }
    std::vector<double> sorted = figure.samples;
    std::ranges::sort(sorted);
    const double p99 = sorted[sorted.size() * 99 / 100];
    std::printf("  p99 %.2f us\n", p99);
    bench_.add(figure, {{"op", "lookup"},
                        {"is",
                         "finding all pages of a request among those that are cached, after other "
                         "memory was touched; what another program has interrupted does not count"},
                        {"interrupted", num_interrupted},
                        {"tokens", num_tokens},
                        {"pages_found", num_found},
                        {"pages_cached", kNumPages},
                        {"page_size", kPageSize},
                        {"bytes_touched_before", kOtherBytes},
                        {"p99", p99}});
  }

  PrefixBench& bench_;
  std::vector<int64_t> other_;
  PagePool pool_{kNumPages};
  PrefixCache cache_{pool_, kPageSize};
  std::vector<Chain> chains_;
  std::vector<PageId> found_;
};

}  // namespace

void measure_lookup(PrefixBench& bench) {
  LookupBench lookup(bench);
  for (const int64_t num_tokens : kLengths) lookup.found(num_tokens);
  lookup.nothing();
}

}  // namespace heddle::app
