// Times lora_apply on the first GPU: decode and prefill at linear sites of an 8B Llama, and
// lora_plan alone.
//   bench_lora_cuda --json FILE [--quick]
// A sample is one replay of a CUDA graph of many sites, shared out over them. Their weights differ
// and come from memory, not from the L2 cache; x and y are the same for all. A plan is made once
// before, as a step of a model makes it once for all its sites.

#include <vector>

#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kPlans = 64;  // calls of lora_plan in a graph

std::vector<Cell> decode_cells() {
  struct Rows {
    int64_t tokens;
    int adapters;
  };
  const std::vector<Rows> of_qkv{{1, 1}, {8, 8}, {32, 8}, {32, 32}, {128, 128}};
  const std::vector<Rows> of_others{{1, 1}, {32, 8}, {32, 32}};
  std::vector<Cell> cells;
  for (const Site* site : {&kQkv, &kDown, &kGateUp}) {
    for (const int rank : {16, 64}) {
      for (const Rows& rows : site == &kQkv ? of_qkv : of_others) {
        cells.push_back({site, rank, rows.tokens, rows.adapters});
      }
    }
  }
  return cells;
}

std::vector<Cell> prefill_cells() {
  std::vector<Cell> cells;
  for (const Site* site : {&kQkv, &kGateUp}) {
    for (const int rank : {16, 64}) {
      for (const int64_t tokens : {512, 2048, 8192}) cells.push_back({site, rank, tokens, 8, true});
    }
  }
  return cells;
}

/// A whole site: the way that the library takes with an exchange, and the one without.
void time_apply(Bench& bench, const Cell& cell) {
  const SiteCalls calls(bench, cell);
  const ExecContext& with_exchange = bench.context().exec();
  ExecContext without_exchange = with_exchange;
  without_exchange.exchange = {};
  add(bench, calls.time(bench, with_exchange, "default"));
  add(bench, calls.time(bench, without_exchange, "two launches"));
}

/// The plan alone; `cell` names the site of which the plan is one, but all sites of the rank have
/// the same.
void time_plan(Bench& bench, const Cell& cell) {
  const ExecContext& ctx = bench.context().exec();
  const Batch batch(ctx, cell);
  add(bench,
      {.op = "lora_plan",
       .site = cell.site->name,
       .rank = cell.rank,
       .tokens = cell.tokens,
       .adapters = cell.adapters,
       .form = "default",
       .num_calls = kPlans,
       .floor_us = double(cell.tokens) * sizeof(int32_t) / kReadBytesPerUs,
       .samples = testing::time_in_graph(bench.stream(), kPlans, [&](int) { batch.plan(ctx); })});
}

/// Adapters of five ranks, and as many of their mean, 48.
void time_mixed_ranks(Bench& bench, const Site& site, int64_t tokens, int adapters) {
  std::vector<int> ranks{8, 16, 32, 64, 128, 64, 8, 64};  // of 8 adapters
  if (adapters > 8) {
    ranks = {16, 32};  // and, of 32, each rank six times
    for (int i = 0; i < 30; ++i) ranks.push_back(8 << i % 5);
  }
  const Cell uniform{.site = &site, .rank = 48, .tokens = tokens, .adapters = adapters};
  Cell mixed = uniform;
  mixed.ranks = ranks;
  HEDDLE_CHECK(mixed.weight_bytes() == uniform.weight_bytes(), "the mean rank is not 48");
  for (const Cell& cell : {uniform, mixed}) {
    const SiteCalls calls(bench, cell);
    Record record = calls.time(bench, bench.context().exec(),
                               cell.ranks.empty() ? "uniform ranks" : "mixed ranks");
    if (!cell.ranks.empty()) record.facts.emplace_back("ranks", cell.ranks);
    add(bench, record);
  }
}

/// Few adapters in use, with how many others in the table.
void time_loaded(Bench& bench, const Site& site, int adapters, int loaded) {
  const Cell cell{.site = &site, .rank = 16, .tokens = 32, .adapters = adapters, .loaded = loaded};
  const std::string form = std::to_string(loaded) + " loaded";
  Record record = SiteCalls(bench, cell).time(bench, bench.context().exec(), form.c_str());
  record.facts.emplace_back("loaded", loaded);
  add(bench, record);
}

void run(Bench& bench) {
  for (const Cell& cell : decode_cells()) {
    time_apply(bench, cell);
    if (cell.site == &kQkv) time_plan(bench, cell);
  }
  for (const Site* site : {&kQkv, &kGateUp, &kDown}) time_apply(bench, {site, 16, 32, 0});
  for (const Cell& cell : prefill_cells()) {
    time_apply(bench, cell);
    if (cell.site == &kQkv) time_plan(bench, cell);
  }
  for (const Site* site : {&kQkv, &kGateUp, &kDown}) time_mixed_ranks(bench, *site, 32, 32);
  time_mixed_ranks(bench, kQkv, 32, 8);
  time_mixed_ranks(bench, kQkv, 128, 128);
  for (const int loaded : {8, 512}) time_loaded(bench, kQkv, 4, loaded);
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
