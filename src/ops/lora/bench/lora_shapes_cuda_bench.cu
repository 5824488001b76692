// Times lora_apply on the first GPU at 200 random shapes, off the beaten track: odd extents, rows
// that are aligned to nothing, all ranks, few and many rows and adapters.
//   bench_lora_shapes_cuda --json FILE [--quick]
// The bar of a shape is 2.5 times what its bytes take at 4.6 TB/s, or its operations at 700 TFLOP/s
// if that is more, and 6 us. A seed makes a shape, the same everywhere. Weights lie in one block of
// random values and come from memory where there are enough of them; x and y are the same for all
// calls. A plan is made once before.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "core/math.h"
#include "ops/lora/bench/lora_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kShapes = 200, kQuickShapes = 40;
constexpr int64_t kMaxFeatures = 32768, kMaxTokens = 4096;
constexpr int kMaxRank = 512, kMaxAdapters = 256, kMaxSlices = 4;
constexpr int64_t kPoolBytes = int64_t{40} << 30, kQuickPoolBytes = int64_t{8} << 30;
constexpr int64_t kColdBytes = int64_t{256}
                               << 20;  // of weights in use in a graph, if there is room
constexpr int64_t kMaxCopies = 64, kMaxEntries = 20000;  // of one shape: making them takes time
constexpr double kGraphUs = 8000;                        // a graph should take about that long
constexpr double kFlopsPerUs = 7e8, kFactor = 2.5, kExtraUs = 6;
constexpr testing::Replays kReplays{.warm_up = 2, .timed = 5};

enum class Alignment { kTight, kPadded, kOdd };
const char* const kAlignmentNames[] = {"no gaps", "rows at 16 bytes", "odd strides and starts"};

struct Shape {
  uint64_t seed;
  int64_t in_features;
  std::vector<int64_t> out_features;
  int rank, adapters;
  int64_t tokens;
  Alignment alignment;
  std::vector<int32_t> ids;           // of each row, or
  std::vector<int32_t> starts, ends;  // the rows of each adapter
  int used = 0;                       // adapters that rows have

  explicit Shape(uint64_t seed_of_shape);

  [[nodiscard]] int64_t sum_out_features() const {
    return std::accumulate(out_features.begin(), out_features.end(), int64_t{0});
  }
  /// Elements from one row of `width` columns to the next.
  [[nodiscard]] int64_t stride(int64_t width) const {
    switch (alignment) {
      case Alignment::kTight: return width;
      case Alignment::kPadded: return round_up(width, 8);
      case Alignment::kOdd: return (width + 1) | 1;
    }
    return width;
  }
  /// Where a matrix may start, from `next` on.
  [[nodiscard]] int64_t start(int64_t next) const {
    return round_up(next, 8) + (alignment == Alignment::kOdd ? 1 : 0);
  }
  [[nodiscard]] bool fits_vectors() const {
    return rank % (rank <= 16 ? 4 : 8) == 0 && stride(in_features) % 8 == 0 &&
           stride(rank) % 8 == 0;
  }
  /// Elements of A and B of an adapter, with all gaps.
  [[nodiscard]] int64_t adapter_size() const {
    int64_t size = 0;
    for (const int64_t out : out_features) {
      size = start(size) + rank * stride(in_features);
      size = start(size) + out * stride(rank);
    }
    return round_up(size, 8);
  }
  [[nodiscard]] int64_t weight_bytes(int num_adapters) const {
    return kElement * num_adapters * rank *
           (std::ssize(out_features) * in_features + sum_out_features());
  }
  [[nodiscard]] double floor_us() const {
    const int64_t of_row = kElement * (in_features + 2 * sum_out_features());
    return double(weight_bytes(used) + tokens * of_row) / kReadBytesPerUs;
  }
  /// Both terms of the rank vector count in expand.
  [[nodiscard]] double flops_us() const {
    const int64_t of_row = 2 * std::ssize(out_features) * in_features + 4 * sum_out_features();
    return double(tokens) * rank * double(of_row) / kFlopsPerUs;
  }
  [[nodiscard]] double bar_us() const {
    return kFactor * std::max(floor_us(), flops_us()) + kExtraUs;
  }
};

Shape::Shape(uint64_t seed_of_shape) : seed(seed_of_shape) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return double(random() >> 11) * 0x1p-53; };  // in [0, 1)
  const auto below = [&](int64_t n) { return static_cast<int64_t>(uniform() * double(n)); };
  const auto log_uniform = [&](int64_t high) {
    return std::min(high, static_cast<int64_t>(std::pow(double(high + 1), uniform())));
  };
  in_features = log_uniform(kMaxFeatures);
  out_features.resize(size_t(1 + below(kMaxSlices)));
  for (int64_t& out : out_features) out = log_uniform(kMaxFeatures);
  rank = static_cast<int>(log_uniform(kMaxRank));
  tokens = log_uniform(kMaxTokens);
  adapters = static_cast<int>(log_uniform(kMaxAdapters));
  alignment = static_cast<Alignment>(below(3));
  if (below(2) == 0) {
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(below(adapters)));
    used = static_cast<int>(std::set<int32_t>(ids.begin(), ids.end()).size());
    return;
  }
  ends.push_back(static_cast<int32_t>(tokens));
  for (int i = 1; i < adapters; ++i) ends.push_back(static_cast<int32_t>(below(tokens + 1)));
  std::sort(ends.begin(), ends.end());
  starts = {0};
  starts.insert(starts.end(), ends.begin(), ends.end() - 1);
  for (size_t s = 0; s < ends.size(); ++s) used += ends[s] > starts[s] ? 1 : 0;
}

/// The tables of one set of weights.
struct Tables {
  Tables(const ExecContext& ctx, const Shape& shape, const RandomValues& pool, int64_t first)
      : a(ctx, shape.adapters, std::vector<int64_t>(shape.out_features.size(), shape.in_features),
          shape.rank, kDtype, LoraLayout::kRankMajor,
          shape.fits_vectors() ? LoraAlignment::k16Bytes : LoraAlignment::kNone),
        b(ctx, shape.adapters, shape.out_features, shape.rank, kDtype, LoraLayout::kRankMinor,
          shape.fits_vectors() ? LoraAlignment::k16Bytes : LoraAlignment::kNone) {
    const int64_t a_stride = shape.stride(shape.in_features), b_stride = shape.stride(shape.rank);
    for (int slot = 0; slot < shape.adapters; ++slot, first += shape.adapter_size()) {
      int64_t next = 0;
      for (int s = 0; s < static_cast<int>(shape.out_features.size()); ++s) {
        const int64_t out = shape.out_features[size_t(s)];
        next = shape.start(next);
        a.set(ctx, slot, s, pool.view(shape.rank, shape.in_features, first + next, a_stride));
        next = shape.start(next + shape.rank * a_stride);
        b.set(ctx, slot, s, pool.view(out, shape.rank, first + next, b_stride));
        next += out * b_stride;
      }
    }
  }
  AdapterTable a, b;
};

class Shapes {
 public:
  explicit Shapes(Bench& bench)
      : bench_(bench),
        pool_bytes_(bench.is_quick() ? kQuickPoolBytes : kPoolBytes),
        weights_(pool_bytes_ / kElement, 0.02),
        x_((kMaxTokens + 1) * (kMaxFeatures + 8), 1),
        y_((kMaxTokens + 1) * kMaxSlices * (kMaxFeatures + 8), 1) {}

  [[nodiscard]] bool has_room_for(const Shape& shape) const {
    return kElement * shape.adapters * shape.adapter_size() <= pool_bytes_;
  }

  Record time(const Shape& shape) {
    bench_.context().reserve_workspace(
        lora_apply_workspace_bytes(kGpu, shape.tokens, shape.in_features,
                                   static_cast<int>(shape.out_features.size()), shape.rank));
    const ExecContext& ctx = bench_.context().exec();
    const int64_t size = shape.adapters * shape.adapter_size();
    const int64_t entries = 2 * int64_t{shape.adapters} * std::ssize(shape.out_features);
    const int64_t num_copies = std::clamp<int64_t>(
        kColdBytes / shape.weight_bytes(shape.used), 1,
        std::min({kMaxCopies, kMaxEntries / entries, pool_bytes_ / kElement / size}));
    std::deque<Tables> tables;
    for (int64_t i = 0; i < num_copies; ++i) tables.emplace_back(ctx, shape, weights_, i * size);

    std::deque<Indices> arrays;
    LoraBatch batch;
    if (shape.ids.empty()) {
      batch = LoraBatch::from_segments(arrays.emplace_back(shape.starts).view(),
                                       arrays.emplace_back(shape.ends).view());
    } else {
      batch = LoraBatch::from_ids(arrays.emplace_back(shape.ids).view());
    }
    const auto plan_bytes = static_cast<int64_t>(lora_plan_bytes(shape.tokens, shape.rank));
    const DeviceBytes plan = allocate_zeroed(kGpu, size_t(plan_bytes));
    const TensorView plan_view(plan.get(), DType::kUInt8, kGpu, {plan_bytes});
    lora_plan(ctx, plan_view, batch, shape.tokens, shape.adapters, shape.rank);
    batch.plan = plan_view;

    const TensorView x =
        x_.view(shape.tokens, shape.in_features, shape.start(0), shape.stride(shape.in_features));
    const std::vector<LoraSlice> slices = slices_of(shape);
    const int num_calls =
        std::clamp(static_cast<int>(kGraphUs / shape.bar_us()), 2, static_cast<int>(kMaxCopies));
    auto samples = testing::time_in_graph(
        bench_.stream(), num_calls,
        [&](int i) {
          const Tables& t = tables[size_t(i) % tables.size()];
          lora_apply(ctx, slices, x, t.a.view(), t.b.view(), batch);
        },
        kReplays);
    return record(shape, num_calls, num_copies, std::move(samples));
  }

 private:
  /// Column ranges of one product; padded rows begin each at 16 bytes.
  std::vector<LoraSlice> slices_of(const Shape& shape) const {
    std::vector<int64_t> columns{0};
    for (const int64_t out : shape.out_features) {
      const int64_t width = shape.alignment == Alignment::kPadded ? round_up(out, 8) : out;
      columns.push_back(columns.back() + width);
    }
    std::vector<LoraSlice> slices;
    for (size_t s = 0; s < shape.out_features.size(); ++s) {
      slices.push_back({y_.view(shape.tokens, shape.out_features[s], shape.start(0) + columns[s],
                                shape.stride(columns.back()))});
    }
    return slices;
  }

  static Record record(const Shape& shape, int num_calls, int64_t num_copies,
                       std::vector<double> samples) {
    const double us = median(samples);
    Record result{.op = "lora_apply",
                  .site = "seed " + std::to_string(shape.seed),
                  .rank = shape.rank,
                  .tokens = shape.tokens,
                  .adapters = shape.used,
                  .form = "random shape",
                  .num_calls = num_calls,
                  .floor_us = shape.floor_us(),
                  .samples = std::move(samples)};
    result.facts = {{"seed", shape.seed},
                    {"in_features", shape.in_features},
                    {"out_features", shape.out_features},
                    {"loaded", shape.adapters},
                    {"rows", shape.ids.empty() ? "segments" : "ids"},
                    {"alignment", kAlignmentNames[static_cast<int>(shape.alignment)]},
                    {"sets_of_weights", num_copies},
                    {"flops_us", shape.flops_us()},
                    {"bar_us", shape.bar_us()},
                    {"times_bar", us / shape.bar_us()}};
    return result;
  }

  Bench& bench_;
  int64_t pool_bytes_;
  RandomValues weights_, x_, y_;
};

void run(Bench& bench) {
  Shapes shapes(bench);
  const int wanted = bench.is_quick() ? kQuickShapes : kShapes;
  int measured = 0, above = 0, failed = 0, too_large = 0;
  for (uint64_t seed = 1; measured + failed < wanted; ++seed) {
    const Shape shape(seed);
    if (!shapes.has_room_for(shape)) {
      ++too_large;
      continue;
    }
    try {
      const Record record = shapes.time(shape);
      const double times_bar = median(record.samples) / shape.bar_us();
      if (times_bar > 1) {
        ++above;
        std::printf("%.2f times the bar: %lld -> %s\n", times_bar,
                    static_cast<long long>(shape.in_features),
                    Fact("", shape.out_features).text.c_str());
      }
      add(bench, record);
      ++measured;
    } catch (const Error& error) {
      ++failed;
      std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
    }
  }
  std::printf("%d shapes, %d of them above the bar; %d were too large for the memory\n", measured,
              above, too_large);
  HEDDLE_CHECK(failed == 0, failed, " shapes could not be timed");
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
