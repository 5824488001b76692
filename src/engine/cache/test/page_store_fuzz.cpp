// Any bytes as the files of a folder of pages: it opens, and a page that is read has the bytes of
// its slot, whose checksum its record has. The first byte says what is added to the input, so that
// what comes after the checksums is reached: 1, a good header; 3, also those of records and pages.
// The second byte says how many pages follow; the rest are records, with 0 the whole index.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "engine/cache/page_store.h"
#include "testing/temp_folder.h"

namespace {

using namespace heddle;
using Bytes = std::vector<std::byte>;

constexpr int kPageSize = 2;
constexpr int64_t kPageBytes = 16;
constexpr int64_t kNumSlots = 32;

PageIdentity own_identity() {
  PageIdentity identity;
  identity.add("model", "m");
  return identity;
}
std::string whole_identity() { return "page_size=2\npage_bytes=16\n" + own_identity().text(); }

void add_header(Bytes& index) {
  IndexHeader header{.secret = {}, .identity = whole_identity()};
  for (size_t i = 0; i < header.secret.size(); ++i) {
    header.secret[i] = static_cast<std::byte>(37 * i + 11);
  }
  const Bytes bytes = header_of(header);
  index.insert(index.begin(), bytes.begin(), bytes.end());
}

/// Gives each record the digests of what it says and of the page in its slot.
void repair_records(Bytes& index, const Bytes& pages) {
  const PageSecret secret = read_header(index).secret;
  const size_t first = header_bytes(whole_identity().size()), size = record_bytes(kPageSize);
  const auto record_at = [&](size_t slot) {
    return std::span(index).subspan(first + slot * size, size);
  };
  std::multimap<uint64_t, size_t> slots;  // by id, so that parents come first
  for (size_t slot = 0; first + (slot + 1) * size <= index.size(); ++slot) {
    // Small numbers, so that parents are found.
    const auto id = std::to_integer<uint64_t>(record_at(slot)[16]);
    if (id != 0) slots.emplace(id, slot);
  }
  std::map<uint64_t, Digest> chains;
  for (const auto& [id, slot] : slots) {
    const std::span<std::byte> record = record_at(slot);
    const auto parent = std::to_integer<uint64_t>(record[24]);
    PageRecord fields;
    fields.tokens.resize(kPageSize);
    fields.id = StoredPage{id};
    fields.parent = StoredPage{parent};
    fields.last_use = std::to_integer<uint64_t>(record[32]);
    fields.acts.low = std::to_integer<uint64_t>(record[48]);
    std::memcpy(fields.tokens.data(), record.data() + 96, kPageSize * sizeof(int32_t));
    fields.chain = chain_of(chains[parent], fields.acts, fields.tokens, secret);
    chains[id] = fields.chain;
    const size_t begin = slot * kPageBytes;
    if (begin + kPageBytes <= pages.size()) {
      fields.checksum = page_checksum(std::span(pages).subspan(begin, kPageBytes), secret);
    }
    write_record(fields, static_cast<int64_t>(slot), secret, record);
  }
}

/// Finds and reads all pages that the index says to have.
void read_all(const Bytes& index, const Bytes& pages, PageStore& store) {
  const size_t first = header_bytes(whole_identity().size()), size = record_bytes(kPageSize);
  PageRecord record;
  record.tokens.resize(kPageSize);
  for (size_t slot = 0; slot < kNumSlots && first + (slot + 1) * size <= index.size(); ++slot) {
    const auto bytes = std::span(index).subspan(first + slot * size, size);
    const auto state = read_record(bytes, static_cast<int64_t>(slot), store.secret(), record);
    if (state != RecordState::kGood) continue;
    const auto found =
        store.find({.parent = record.parent, .acts = record.acts, .tokens = record.tokens});
    if (!found || found->id != record.id) continue;  // left out
    Bytes page(kPageBytes);
    if (!store.begin_read(found->id, page)) std::abort();
    const auto result = store.wait();
    if (!result) std::abort();
    if (!result->is_good) continue;
    const size_t begin = slot * kPageBytes;
    if (begin + kPageBytes > pages.size()) std::abort();
    if (!std::ranges::equal(page, std::span(pages).subspan(begin, kPageBytes))) std::abort();
    if (page_checksum(page, store.secret()) != record.checksum) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const heddle::testing::TempFolder kFolder;
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  const auto rest = input.subspan(2);
  const size_t num_pages_bytes =
      std::min(rest.size(), std::to_integer<size_t>(input[1]) * kPageBytes);
  const Bytes pages(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(num_pages_bytes));
  Bytes index(rest.begin() + static_cast<std::ptrdiff_t>(num_pages_bytes), rest.end());
  const auto repairs = std::to_integer<unsigned>(input[0]);
  if ((repairs & 1) != 0) add_header(index);
  if ((repairs & 3) == 3) repair_records(index, pages);
  const auto text_of = [](const Bytes& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const char* name : {"heddle_kv_index", "heddle_kv_pages"}) {
    // As a new file: to write over one makes some file systems wait for the disk.
    std::filesystem::remove(kFolder.path() / name);
  }
  kFolder.write("heddle_kv_index", text_of(index));
  kFolder.write("heddle_kv_pages", text_of(pages));
  PageStoreOptions options;
  options.dir = kFolder.path().string();
  options.page_bytes = kPageBytes;
  options.page_size = kPageSize;
  options.max_bytes = static_cast<int64_t>(header_bytes(whole_identity().size())) +
                      kNumSlots * static_cast<int64_t>(record_bytes(kPageSize) + kPageBytes);
  PageStore store(options, own_identity(), [](const std::string& warning) {
    if (warning.find('\n') != std::string::npos) std::abort();
  });
  if (!store.is_open()) std::abort();
  read_all(index, pages, store);
  return 0;
}
