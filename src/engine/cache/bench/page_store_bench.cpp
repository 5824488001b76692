// Pages on disk: how fast they are written and read, and how long a folder takes to open. Files are
// in the folder of temporary files, and most reads come from the system's memory.
#include <fstream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/cache/page_store.h"
#include "testing/temp_folder.h"

namespace heddle {
namespace {

constexpr int kBenchPageSize = 16;

PageStoreOptions options_in(const testing::TempFolder& folder, int64_t page_bytes,
                            int64_t num_pages) {
  PageStoreOptions options;
  options.dir = (folder.path() / "kv").string();
  options.page_bytes = page_bytes;
  options.page_size = kBenchPageSize;
  options.max_bytes = (int64_t{1} << 20) + num_pages * (page_bytes + (int64_t{1} << 10));
  return options;
}

void print_warning(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

std::vector<int32_t> tokens_of(int64_t page) {
  return std::vector<int32_t>(kBenchPageSize, static_cast<int32_t>(page));
}

/// Writes pages until the store has them all, as one chain.
std::vector<StoredPage> write_chain(PageStore& store, int64_t num_pages, int64_t page_bytes) {
  const std::vector<std::byte> bytes(static_cast<size_t>(page_bytes), std::byte{1});
  std::vector<StoredPage> pages{StoredPage::kRoot};
  for (int64_t page = 0; page < num_pages; ++page) {
    const std::vector<int32_t> tokens = tokens_of(page);
    std::optional<StoredPage> id;
    while (!id) id = store.write({.parent = pages.back(), .acts = {}, .tokens = tokens}, bytes);
    pages.push_back(*id);
  }
  while (store.stats().num_queued > 0) continue;
  return pages;
}

void write_pages(benchmark::State& state, int64_t page_bytes, int64_t num_pages) {
  for (auto _ : state) {
    state.PauseTiming();
    const testing::TempFolder folder;
    PageStore store(options_in(folder, page_bytes, num_pages), {}, print_warning);
    state.ResumeTiming();
    write_chain(store, num_pages, page_bytes);
    state.PauseTiming();
    store.close();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * num_pages);
  state.SetBytesProcessed(state.iterations() * num_pages * page_bytes);
}

void read_pages(benchmark::State& state, int64_t page_bytes, int64_t num_pages) {
  const testing::TempFolder folder;
  PageStore store(options_in(folder, page_bytes, num_pages), {}, print_warning);
  const std::vector<StoredPage> pages = write_chain(store, num_pages, page_bytes);
  std::vector<std::byte> to(static_cast<size_t>(page_bytes));
  for (auto _ : state) {
    for (int64_t page = 0; page < num_pages; ++page) {
      if (!store.begin_read(pages[static_cast<size_t>(page) + 1], to)) std::abort();
    }
    for (int64_t page = 0; page < num_pages; ++page) {
      if (!store.wait()->is_good) std::abort();
    }
  }
  state.SetItemsProcessed(state.iterations() * num_pages);
  state.SetBytesProcessed(state.iterations() * num_pages * page_bytes);
}

/// What the thread of the engine pays for a page that is there.
void find_page(benchmark::State& state, int64_t num_pages) {
  const testing::TempFolder folder;
  PageStore store(options_in(folder, 4096, num_pages), {}, print_warning);
  const std::vector<StoredPage> pages = write_chain(store, num_pages, 4096);
  int64_t page = 0;
  for (auto _ : state) {
    const std::vector<int32_t> tokens = tokens_of(page);
    const PageContent content{
        .parent = pages[static_cast<size_t>(page)], .acts = {}, .tokens = tokens};
    if (!store.find(content)) std::abort();
    page = (page + 1) % num_pages;
  }
}

/// An index with records of many pages, whose bytes are not there.
void open_folder(benchmark::State& state, int64_t num_pages) {
  constexpr int64_t kPageBytes = 64 << 10;
  const testing::TempFolder folder;
  const PageStoreOptions options = options_in(folder, kPageBytes, num_pages);
  PageSecret secret;
  { secret = PageStore(options, {}, print_warning).secret(); }
  std::vector<std::byte> record(record_bytes(kBenchPageSize));
  std::ofstream index(options.dir + "/heddle_kv_index", std::ios::binary | std::ios::app);
  Digest chain;
  for (int64_t page = 0; page < num_pages; ++page) {
    const auto id = static_cast<uint64_t>(page) + 1;
    chain = chain_of(page % 100 == 0 ? Digest{} : chain, {}, tokens_of(page), secret);
    write_record({.id = StoredPage{id},
                  .parent = StoredPage{page % 100 == 0 ? 0 : id - 1},
                  .last_use = id,
                  .acts = {},
                  .checksum = {},
                  .chain = chain,
                  .tokens = tokens_of(page)},
                 page, secret, record);
    index.write(reinterpret_cast<const char*>(record.data()),
                static_cast<std::streamsize>(record.size()));
  }
  index.close();
  for (auto _ : state) {
    PageStore store(options, {}, print_warning);
    if (store.stats().num_pages != num_pages) std::abort();
  }
}

const bool is_added = [] {
  for (const int64_t kib : {64, 720, 4096}) {
    const int64_t page_bytes = kib << 10, num_pages = (int64_t{256} << 20) / page_bytes;
    const std::string end = "/page:" + std::to_string(kib) + "K";
    benchmark::RegisterBenchmark(("kv_folder/write" + end).c_str(), write_pages, page_bytes,
                                 num_pages)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("kv_folder/read" + end).c_str(), read_pages, page_bytes,
                                 num_pages)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("kv_folder/find/pages:1000", find_page, 1000);
  benchmark::RegisterBenchmark("kv_folder/open/pages:100000", open_folder, 100'000)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace heddle
