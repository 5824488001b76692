// What the prefix cache costs requests that share nothing.
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
  const auto run = [&](Engine& engine) {
    std::vector<Request> requests;
    for (int i = 0; i < num_requests; ++i) {
      requests.push_back(PrefixBench::request_of(bench.tokens(engine, prompt), answer));
    }
    const int64_t found = engine.stats().cached_tokens;
    const auto begin = Clock::now();
    for (Request& request : requests) engine.submit(std::move(request));
    PrefixBench::run_to_end(engine);
    const double seconds = 1e-3 * PrefixBench::ms_since(begin);
    HEDDLE_CHECK(engine.stats().cached_tokens == found, "the requests shared tokens");
    return static_cast<double>(num_requests * (prompt + answer)) / seconds;
  };
  Figure rates[] = {{"apart_with_cache", "tokens/s", {}}, {"apart_without_cache", "tokens/s", {}}};
  for (int round = -1; round < given.num_samples; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t side = round % 2 == 0 ? i : 1 - i;
      const double rate = run(engines[side]);
      if (round >= 0) rates[side].samples.push_back(rate);
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
}

}  // namespace heddle::app
