// What the prefix cache costs requests that share nothing.
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;

constexpr int kRequests = 64, kBatch = 16, kAnswer = 32;
constexpr int64_t kPrompt = 512;

}  // namespace

void measure_apart(PrefixBench& bench) {
  const BenchOptions& given = bench.options();
  const int num_requests = PrefixBench::given_or(given.num_requests, kRequests);
  const int64_t prompt = given.prompt > 0 ? given.prompt : kPrompt;
  const int answer = PrefixBench::given_or(given.num_tokens, kAnswer);
  const int batch = PrefixBench::given_or(given.batch, kBatch);
  std::vector<Engine> engines;  // with the cache, and without
  for (const bool has_cache : {true, false}) {
    // Twice what runs at once, and less than what all requests leave, so that pages are evicted.
    EngineOptions options = bench.engine_options(2 * batch * (prompt + answer));
    options.max_batch = batch;
    options.max_context = 2 * (prompt + answer);  // which bounds the cache, too
    options.prefix_cache = has_cache;
    engines.push_back(bench.make(options));
  }
  struct Rates {
    double by_time, by_processor;
  };
  const auto run = [&](Engine& engine) -> Rates {
    std::vector<Request> requests;
    for (int i = 0; i < num_requests; ++i) {
      requests.push_back(PrefixBench::request_of(bench.tokens(engine, prompt), answer));
    }
    const int64_t found = engine.stats().cached_tokens;
    const std::clock_t processor = std::clock();
    const auto begin = Clock::now();
    for (Request& request : requests) engine.submit(std::move(request));
    PrefixBench::run_to_end(engine);
    const double seconds = 1e-3 * PrefixBench::ms_since(begin);
    const double used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
    HEDDLE_CHECK(engine.stats().cached_tokens == found, "the requests shared tokens");
    const auto num_tokens = static_cast<double>(num_requests * (prompt + answer));
    return {num_tokens / seconds, num_tokens / used};
  };
  Figure rates[] = {{"apart_with_cache", "tokens/s", {}}, {"apart_without_cache", "tokens/s", {}}};
  std::vector<double> by_processor[2];
  for (int round = -1; round < given.num_samples; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t side = round % 2 == 0 ? i : 1 - i;
      const Rates rate = run(engines[side]);
      if (round < 0) continue;
      rates[side].samples.push_back(rate.by_time);
      by_processor[side].push_back(rate.by_processor);
    }
  }
  const Json what = {{"op", "apart"},
                     {"is", "tokens of prompts and answers a second; no two prompts begin alike"},
                     {"requests", num_requests},
                     {"max_batch", batch},
                     {"prompt", prompt},
                     {"answer", answer},
                     {"cache_pages", engines.front().load().num_pages}};
  for (const Figure& figure : rates) bench.add(figure, what);
  bench.add_ratio("apart_with_over_without", rates[0].samples, rates[1].samples, what);
  // Of all threads: other programs on the machine change it less than they change seconds.
  Json by_time_used = what;
  by_time_used["is"] = "the same of tokens for a second of processor time";
  bench.add_ratio("apart_by_processor_time", by_processor[0], by_processor[1],
                  std::move(by_time_used));
}

}  // namespace heddle::app
