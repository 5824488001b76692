// Times sample on the first GPU, f32 logits whose softmax falls about as rank^-exponent: 1.5 is
// like a language model, 0.2 nearly flat. Calls of a graph take other rows each, up to 64 calls.
// floor_us is the time to read the logits once at 2.99 TB/s, what plain reads of as many bytes
// reach on an H100, and at least an empty kernel in a graph, 0.53 us; `ratio` is over that.

#include <algorithm>
#include <cmath>
#include <vector>

#include "heddle/ops/sampling.h"

#include "testing/bench_program_cuda.h"
#include "testing/device_buffer.h"

namespace heddle {
namespace {

constexpr double kLogitBytesPerUs = 2.99e6;

struct SampleCase {
  const char* name;
  float temperature, top_p, min_p;
  int32_t top_k;
  bool is_flat = false, with_logprobs = false, with_penalties = false;
};

std::vector<float> make_logits(int64_t n, double exponent) {
  std::vector<float> logits(static_cast<size_t>(n));
  uint64_t state = 1;
  for (float& x : logits) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = (static_cast<double>(state >> 40) + 1.0) * 0x1p-24;
    x = static_cast<float>(-exponent * std::log(uniform));
  }
  return logits;
}

/// Rows of any vocabulary, more than fit into the L2 cache, made once.
struct Logits {
  static constexpr int64_t kCount = int64_t{72} << 20;

  double exponent;
  testing::DeviceBuffer<float> values;

  explicit Logits(double its_exponent)
      : exponent(its_exponent), values(make_logits(kCount, its_exponent)) {}
};

/// Penalties of so many tokens of each row.
class Penalties {
 public:
  Penalties(int64_t rows, int64_t vocab)
      : rows_(rows),
        indptr_(evenly(rows + 1, kPerRow)),
        token_ids_(repeated(rows, vocab)),
        counts_(std::vector<int32_t>(size(rows * kPerRow), 1)),
        bias_(std::vector<float>(size(rows * kPerRow), 0.0f)),
        saved_(size(rows * kPerRow)),
        strengths_(std::vector<float>(size(rows), 1.1f)) {}

  [[nodiscard]] LogitAdjustments view() const {
    const int64_t n = rows_ * kPerRow;
    return {.indptr = indptr_.view({rows_ + 1}),
            .token_ids = token_ids_.view({n}),
            .prompt_counts = counts_.view({n}),
            .output_counts = counts_.view({n}),
            .bias = bias_.view({n}),
            .repetition = strengths_.view({rows_}),
            .presence = strengths_.view({rows_}),
            .frequency = strengths_.view({rows_})};
  }
  [[nodiscard]] TensorView saved() const { return saved_.view({rows_ * kPerRow}); }

 private:
  static constexpr int64_t kPerRow = 256;

  static size_t size(int64_t n) { return static_cast<size_t>(n); }
  static std::vector<int32_t> evenly(int64_t n, int64_t step) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(i * step));
    return values;
  }
  static std::vector<int32_t> repeated(int64_t rows, int64_t vocab) {
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<int32_t> own = evenly(kPerRow, vocab / kPerRow);
      ids.insert(ids.end(), own.begin(), own.end());
    }
    return ids;
  }

  int64_t rows_;
  testing::DeviceBuffer<int32_t> indptr_, token_ids_, counts_;
  testing::DeviceBuffer<float> bias_, saved_, strengths_;
};

void time_sample(testing::BenchProgram& bench, const Logits& logits, const SampleCase& c,
                 int64_t rows, int64_t vocab) {
  const int64_t bytes = rows * vocab * int64_t{sizeof(float)};
  const int64_t copies = std::min<int64_t>(64, Logits::kCount / (rows * vocab));
  const auto all = [rows](auto value) {
    return testing::DeviceBuffer<decltype(value)>(
        std::vector<decltype(value)>(static_cast<size_t>(rows), value));
  };
  const auto temperature = all(c.temperature), top_p = all(c.top_p), min_p = all(c.min_p);
  const auto top_k = all(c.top_k);
  std::vector<int64_t> seeds;
  for (int64_t r = 0; r < rows; ++r) seeds.push_back(r);
  const testing::DeviceBuffer<int64_t> seed(seeds);
  const auto step = all(int64_t{0});
  const testing::DeviceBuffer<int32_t> tokens(static_cast<size_t>(rows));
  const testing::DeviceBuffer<float> logprobs(static_cast<size_t>(rows));
  const Penalties penalties(rows, vocab);
  const ExecContext& ctx = bench.context().exec();
  const auto call = [&](int i) {
    const TensorView part =
        logits.values.view({copies * rows, vocab}).narrow(0, i % copies * rows, rows);
    if (c.with_penalties) adjust_logits(ctx, part, penalties.saved(), penalties.view());
    sample(ctx, tokens.view({rows}), c.with_logprobs ? logprobs.view({rows}) : TensorView{}, part,
           {temperature.view({rows}), top_k.view({rows}), top_p.view({rows}), min_p.view({rows}),
            seed.view({rows}), step.view({rows})});
    if (c.with_penalties) restore_logits(ctx, part, penalties.saved(), penalties.view());
  };
  const int calls = static_cast<int>(std::max<int64_t>(2 * copies, 40));
  const double floor_us = std::max(testing::kEmptyKernelUs, double(bytes) / kLogitBytesPerUs);
  const testing::Replays replays{.warm_up = 3, .timed = bench.is_quick() ? 5 : 31};
  const std::vector<double> samples = testing::time_in_graph(bench.stream(), calls, call, replays);
  bench.add({{"op", "sample"},
             {"case", c.name},
             {"exponent", logits.exponent},
             {"rows", rows},
             {"vocab", vocab},
             {"bytes", bytes},
             {"ratio", testing::median(samples) / floor_us},
             {"calls_in_graph", calls}},
            floor_us, samples);
}

void run(testing::BenchProgram& bench) {
  const Logits usual(1.5), flat(0.2);
  const SampleCase cases[] = {
      {"greedy", 0.0f, 1.0f, 0.0f, 0},
      {"greedy, logprobs", 0.0f, 1.0f, 0.0f, 0, false, true},
      {"temperature 1", 1.0f, 1.0f, 0.0f, 0},
      {"temperature 0.7, logprobs", 0.7f, 1.0f, 0.0f, 0, false, true},
      {"min_p 0.05", 1.0f, 1.0f, 0.05f, 0},
      {"top_p 0.9", 1.0f, 0.9f, 0.0f, 0},
      {"top_p 0.9, flat", 1.0f, 0.9f, 0.0f, 0, true},
      {"top_k 50", 1.0f, 1.0f, 0.0f, 50},
      {"top_k 50, flat", 1.0f, 1.0f, 0.0f, 50, true},
      {"top_k 50, top_p 0.9, min_p 0.05", 0.7f, 0.9f, 0.05f, 50},
      {"top_k 50, top_p 0.9, min_p 0.05, logprobs", 0.7f, 0.9f, 0.05f, 50, false, true},
      {"penalties, top_k 50, top_p 0.9, min_p 0.05", 0.7f, 0.9f, 0.05f, 50, false, false, true},
  };
  for (const int64_t vocab : {32000, 128256, 151936}) {
    for (const int64_t rows : {1, 8, 32, 128}) {
      for (const SampleCase& c : cases) {
        time_sample(bench, c.is_flat ? flat : usual, c, rows, vocab);
      }
    }
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
