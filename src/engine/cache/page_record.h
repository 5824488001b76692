#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"

namespace heddle {

/// Which page of a store it is, for as long as the folder exists: a number is given to one chain of
/// tokens and never to another one. kRoot is what the first page of a chain has for a parent.
enum class StoredPage : uint64_t { kRoot = 0 };

/// What a page is known by.
struct PageContent {
  StoredPage parent = StoredPage::kRoot;
  Digest acts;
  std::span<const int32_t> tokens;
  bool is_salted = false;  // the first page of requests with a salt, which is in `acts`
};

/// Random bytes that all digests of a folder are made with.
using PageSecret = std::array<std::byte, Hasher::kSecretBytes>;

/// What the index of a folder begins with.
struct IndexHeader {
  PageSecret secret{};
  std::string identity;  // PageIdentity::text()
};

/// What the index says of one page. A page is known by its parent, the tokens in it and what acted
/// on them, and these are compared, not digests of them.
struct PageRecord {
  StoredPage id{}, parent{};  // an id is larger than that of its parent
  uint64_t last_use = 0;      // larger is later
  Digest acts;                // of what acted on the tokens: adapters, a salt
  Digest checksum;            // of the page's bytes
  Digest chain;               // of the contents from the root to this page (chain_of)
  std::vector<int32_t> tokens;
};

/// Where the first record begins: after a header with so many bytes of identity.
[[nodiscard]] size_t header_bytes(size_t identity_bytes);
/// The header [header_bytes] as it lies in the file.
[[nodiscard]] std::vector<std::byte> header_of(const IndexHeader& header);
/// Reads a header from the first bytes of a file, of which it uses header_bytes of the longest
/// identity at most. Throws Error with what follows the file's name: "is damaged".
[[nodiscard]] IndexHeader read_header(std::span<const std::byte> bytes);

/// Bytes of a record, of pages of so many tokens.
[[nodiscard]] size_t record_bytes(size_t page_size);
/// Writes a record for a place in the index. A record that was moved to another place is damaged.
void write_record(const PageRecord& record, int64_t slot, const PageSecret& secret,
                  std::span<std::byte> to);
enum class RecordState : uint8_t { kFree, kDamaged, kGood };
/// Reads a record [record_bytes]. Where it is good, `record` has its values; its tokens have their
/// number before.
[[nodiscard]] RecordState read_record(std::span<const std::byte> bytes, int64_t slot,
                                      const PageSecret& secret, PageRecord& record);

/// What a page's record has in `chain`. It binds pages to their parents, should two of a folder
/// come to one id; kRoot has Digest{}.
[[nodiscard]] Digest chain_of(const Digest& parent_chain, const Digest& acts,
                              std::span<const int32_t> tokens, const PageSecret& secret);
[[nodiscard]] Digest page_checksum(std::span<const std::byte> page, const PageSecret& secret);

}  // namespace heddle
