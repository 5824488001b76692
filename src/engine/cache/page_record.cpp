#include "engine/cache/page_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "heddle/core/error.h"

#include "engine/cache/page_identity.h"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr char kMagic[8] = {'h', 'e', 'd', 'd', 'l', 'e', 'K', 'V'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderUnit = 4096;     // records begin at a multiple of it
constexpr uint64_t kMaxId = ~0ull >> 1;  // so that counting on from any id never wraps

/// As in the file; the identity follows.
struct HeaderFields {
  char magic[8];
  uint32_t version;
  uint32_t identity_bytes;
  Digest checksum;  // of all fields but this one, and of the identity
  PageSecret secret;
};
static_assert(sizeof(HeaderFields) == 224);

/// As in the file; the tokens follow.
struct RecordFields {
  Digest checksum;  // of the slot, all fields but this one, and the tokens
  uint64_t id, parent, last_use;
  uint64_t reserved;  // 0
  Digest acts, page, chain;
};
static_assert(sizeof(RecordFields) == 96);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Digest header_checksum(const HeaderFields& fields, std::string_view identity) {
  const auto bytes = bytes_of(fields);
  return Hasher(fields.secret)
      .add(bytes.first(offsetof(HeaderFields, checksum)))
      .add(bytes.subspan(offsetof(HeaderFields, secret)))
      .add(identity)
      .digest();
}

Digest record_checksum(std::span<const std::byte> record, int64_t slot, const PageSecret& secret) {
  return Hasher(secret).add(slot).add(record.subspan(sizeof(Digest))).digest();
}

}  // namespace

size_t header_bytes(size_t identity_bytes) {
  return (sizeof(HeaderFields) + identity_bytes + kHeaderUnit - 1) / kHeaderUnit * kHeaderUnit;
}

std::vector<std::byte> header_of(const IndexHeader& header) {
  HeaderFields fields{};
  std::memcpy(fields.magic, kMagic, sizeof kMagic);
  fields.version = kVersion;
  fields.identity_bytes = static_cast<uint32_t>(header.identity.size());
  fields.secret = header.secret;
  fields.checksum = header_checksum(fields, header.identity);
  std::vector<std::byte> bytes(header_bytes(header.identity.size()));
  std::memcpy(bytes.data(), &fields, sizeof fields);
  std::memcpy(bytes.data() + sizeof fields, header.identity.data(), header.identity.size());
  return bytes;
}

IndexHeader read_header(std::span<const std::byte> bytes) {
  HeaderFields fields;
  HEDDLE_CHECK(bytes.size() >= sizeof fields, "is damaged: it ends after ", bytes.size(), " bytes");
  std::memcpy(&fields, bytes.data(), sizeof fields);
  HEDDLE_CHECK(std::ranges::equal(fields.magic, kMagic), "is damaged: it is no index of pages");
  // Before the checksum, which another version may make in another way.
  HEDDLE_CHECK(fields.version == kVersion, "has version ", fields.version,
               " of the format, this heddle has ", kVersion);
  const auto rest = bytes.subspan(sizeof fields);
  HEDDLE_CHECK(fields.identity_bytes <= std::min(rest.size(), size_t{PageIdentity::kMaxBytes}),
               "is damaged: its header is cut off");
  const std::string_view identity(reinterpret_cast<const char*>(rest.data()),
                                  fields.identity_bytes);
  HEDDLE_CHECK(fields.checksum == header_checksum(fields, identity),
               "is damaged: the checksum of its header is wrong");
  return {.secret = fields.secret, .identity = std::string(identity)};
}

size_t record_bytes(size_t page_size) {
  constexpr size_t kUnit = 16;
  return (sizeof(RecordFields) + page_size * sizeof(int32_t) + kUnit - 1) / kUnit * kUnit;
}

void write_record(const PageRecord& record, int64_t slot, const PageSecret& secret,
                  std::span<std::byte> to) {
  HEDDLE_CHECK(to.size() == record_bytes(record.tokens.size()), "a record has ", to.size(),
               " bytes");
  RecordFields fields{.checksum = {},
                      .id = static_cast<uint64_t>(record.id),
                      .parent = static_cast<uint64_t>(record.parent),
                      .last_use = record.last_use,
                      .reserved = 0,
                      .acts = record.acts,
                      .page = record.checksum,
                      .chain = record.chain};
  std::ranges::fill(to, std::byte{0});
  std::memcpy(to.data(), &fields, sizeof fields);
  std::ranges::copy(std::as_bytes(std::span(record.tokens)), to.subspan(sizeof fields).begin());
  fields.checksum = record_checksum(to, slot, secret);
  std::memcpy(to.data(), &fields.checksum, sizeof fields.checksum);
}

RecordState read_record(std::span<const std::byte> bytes, int64_t slot, const PageSecret& secret,
                        PageRecord& record) {
  if (std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; })) {
    return RecordState::kFree;
  }
  RecordFields fields;
  std::memcpy(&fields, bytes.data(), sizeof fields);
  const bool is_good = fields.checksum == record_checksum(bytes, slot, secret) && fields.id != 0 &&
                       fields.parent < fields.id && fields.id <= kMaxId &&
                       fields.last_use <= kMaxId;
  if (!is_good) return RecordState::kDamaged;
  record.id = StoredPage{fields.id};
  record.parent = StoredPage{fields.parent};
  record.last_use = fields.last_use;
  record.acts = fields.acts;
  record.checksum = fields.page;
  record.chain = fields.chain;
  const std::span<std::byte> tokens = std::as_writable_bytes(std::span(record.tokens));
  std::ranges::copy(bytes.subspan(sizeof fields, tokens.size()), tokens.begin());
  return RecordState::kGood;
}

Digest chain_of(const Digest& parent_chain, const Digest& acts, std::span<const int32_t> tokens,
                const PageSecret& secret) {
  return Hasher(secret).add(parent_chain).add(acts).add(std::as_bytes(tokens)).digest();
}

Digest page_checksum(std::span<const std::byte> page, const PageSecret& secret) {
  return Hasher(secret).add(page).digest();
}

}  // namespace heddle
