#include <numeric>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/metadata.h"

namespace heddle {
namespace {

using Vector = std::vector<int32_t>;

/// Batches of 256 requests: a decode step, and 33,023 elements spread evenly and as badly as can
/// be.
enum class Batch { kDecode, kEven, kSkewed };

Vector lengths_of(Batch batch) {
  Vector lengths(256, batch == Batch::kEven ? 129 : 1);
  if (batch == Batch::kSkewed) lengths[100] = 32'768;
  return lengths;
}
Vector starts_of(const Vector& lengths) {
  Vector starts(1 + lengths.size(), 0);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}
auto view(const Vector& v) { return host_view(v.data(), {int64_t(v.size())}); }
auto view(Vector& v) { return host_view(v.data(), {int64_t(v.size())}); }
auto view(Vector& v, int64_t rows) { return host_view(v.data(), {rows, int64_t(v.size()) / rows}); }

/// Runs call(ctx) with as many threads; elements are what it writes.
template <class Call>
void measure(benchmark::State& state, int threads, int64_t elements, const Call& call) {
  ThreadPool pool(threads);
  ExecContext ctx;
  ctx.threads = threads > 1 ? &pool : nullptr;
  for (auto _ : state) {
    call(ctx);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * elements);
}

void to_ragged(benchmark::State& state, Batch batch, int threads) {
  const Vector lengths = lengths_of(batch), zeros(256, 0), starts = starts_of(lengths);
  const int64_t width = *std::max_element(lengths.begin(), lengths.end());
  Vector tables(size_t(256 * width), 3), ragged(size_t(starts.back()));
  measure(state, threads, starts.back(), [&](const ExecContext& ctx) {
    block_tables_to_ragged(ctx, view(ragged), view(tables, 256), view(lengths), view(zeros));
  });
}

void to_padded(benchmark::State& state, Batch batch, int threads) {
  const Vector lengths = lengths_of(batch), starts = starts_of(lengths);
  const int64_t width = *std::max_element(lengths.begin(), lengths.end());
  Vector tables(size_t(256 * width), 3), ragged(size_t(starts.back()));
  measure(state, threads, starts.back(), [&](const ExecContext& ctx) {
    block_tables_to_padded(ctx, view(tables, 256), view(ragged), view(starts));
  });
}

void next_ids(benchmark::State& state, Batch, int threads) {
  const Vector lengths(256, 4), starts = starts_of(lengths), cache(256, 500), zeros(256, 0);
  Vector all(256 * 1024), next(1024);
  measure(state, threads, 1024, [&](const ExecContext& ctx) {
    copy_next_input_ids_inplace(ctx, view(all, 256), view(next), view(starts), view(cache),
                                view(lengths), view(zeros));
  });
}

void position_slot_ids(benchmark::State& state, Batch batch, int threads) {
  const Vector lengths = lengths_of(batch), starts = starts_of(lengths), cache(256, 500);
  Vector positions(size_t(starts.back())), slots(positions);
  measure(state, threads, 2 * starts.back(), [&](const ExecContext& ctx) {
    prepare_position_slot_ids(ctx, view(positions), view(slots), view(cache), view(starts),
                              view(starts));
  });
}

void filtering(benchmark::State& state, Batch batch, int threads) {
  const Vector lengths = lengths_of(batch), starts = starts_of(lengths), from(256, 5);
  Vector slots(size_t(starts.back() + 5)), filtered(size_t(starts.back()));
  measure(state, threads, starts.back(), [&](const ExecContext& ctx) {
    slots_filtering(ctx, view(filtered), view(slots), view(starts), view(from));
  });
}

/// Every output, but the padded table only where rows are alike; items are token outputs. 500
/// tokens in the cache of each request, pages of 16, eight adapters.
void whole_step(benchmark::State& state, Batch batch, int threads) {
  const Vector lengths = lengths_of(batch), cache(256, 500);
  Vector adapters(256), counts;
  for (size_t i = 0; i < 256; ++i) adapters[i] = int32_t(i % 9) - 1;
  for (const int32_t n : lengths) counts.push_back((n + 500 + 15) / 16);
  const Vector table_starts = starts_of(counts);
  const int64_t tokens = starts_of(lengths).back(), num_pages = table_starts.back();
  const int64_t width = *std::max_element(counts.begin(), counts.end());
  Vector held(size_t(num_pages), 3), next(256, 9), all(256 * 1024);
  const Vector next_starts = starts_of(Vector(256, 1));
  Vector indptr(257), page_indptr(257), kv(256), last(256), pages(held), table(size_t(256 * width));
  Vector positions(size_t(tokens), 0), kv_slots(positions), seqs(positions), ids(positions);
  Vector slots(positions), rows(positions), row_indptr(9), starts(256), ends(256), seg_slots(256);
  PrepareBatchOutputs out;
  out.q_indptr = view(indptr), out.page_indptr = view(page_indptr), out.kv_lengths = view(kv);
  out.last_page_len = view(last), out.pages = view(pages);
  if (batch == Batch::kDecode) out.page_table = view(table, 256);
  out.positions = view(positions), out.kv_slots = view(kv_slots), out.token_to_seq = view(seqs);
  out.input_ids = view(ids), out.all_input_ids = view(all, 256), out.slot_ids = view(slots);
  out.adapter_rows = view(rows), out.adapter_indptr = view(row_indptr);
  out.seg_starts = view(starts), out.seg_ends = view(ends), out.seg_slots = view(seg_slots);
  PrepareBatchInputs in;
  in.cache_lengths = view(cache), in.input_lengths = view(lengths),
  in.adapter_slots = view(adapters);
  in.seq_pages = view(held), in.seq_page_indptr = view(table_starts);
  in.next_input_ids = view(next), in.next_indptr = view(next_starts);
  in.page_size = 16;
  measure(state, threads, 6 * tokens, [&](const ExecContext& ctx) { prepare_batch(ctx, out, in); });
}

[[maybe_unused]] const bool registered = [] {
  struct Op {
    const char* name;
    void (*run)(benchmark::State&, Batch, int);
  };
  for (const Op& op :
       {Op{"block_tables_to_ragged", to_ragged}, Op{"block_tables_to_padded", to_padded},
        Op{"prepare_position_slot_ids", position_slot_ids}, Op{"slots_filtering", filtering},
        Op{"prepare_batch", whole_step}}) {
    const std::string name = std::string("metadata/") + op.name;
    benchmark::RegisterBenchmark((name + "/decode:256").c_str(), op.run, Batch::kDecode, 1);
    for (const int threads : {1, 2}) {
      const std::string suffix = "/threads:" + std::to_string(threads);
      benchmark::RegisterBenchmark((name + "/even:256x129" + suffix).c_str(), op.run, Batch::kEven,
                                   threads)
          ->UseRealTime();
      benchmark::RegisterBenchmark((name + "/skewed:1x32768+255x1" + suffix).c_str(), op.run,
                                   Batch::kSkewed, threads)
          ->UseRealTime();
    }
  }
  benchmark::RegisterBenchmark("metadata/copy_next_input_ids_inplace/decode:256x4", next_ids,
                               Batch::kDecode, 1);
  return true;
}();

}  // namespace
}  // namespace heddle
