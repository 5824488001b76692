#include "engine/cache/page_record.h"

#include "expect_error.h"
#include "stored_pages.h"

namespace heddle {
namespace {

PageSecret random_secret() {
  PageSecret secret;
  for (std::byte& byte : secret) byte = static_cast<std::byte>(testing::random_int(0, 255));
  return secret;
}

std::span<std::byte> flip_a_bit(std::span<std::byte> bytes) {
  const auto bit = static_cast<size_t>(testing::random_int(0, int64_t(8 * bytes.size()) - 1));
  bytes[bit / 8] ^= std::byte{1} << bit % 8;
  return bytes;
}

TEST(IndexHeader, IsReadAsItWasWritten) {
  for (const size_t size : {0, 1, 3872, 3873, 65536}) {
    const IndexHeader header{.secret = random_secret(), .identity = std::string(size, 'x')};
    std::vector<std::byte> bytes = header_of(header);
    EXPECT_EQ(bytes.size(), header_bytes(size));
    EXPECT_EQ(bytes.size() % 4096, 0u);
    bytes.resize(bytes.size() + 100);
    const IndexHeader read = read_header(bytes);
    EXPECT_EQ(read.secret, header.secret);
    EXPECT_EQ(read.identity, header.identity);
  }
}

TEST(IndexHeader, OneThatIsDamagedIsRefused) {
  const std::vector<std::byte> good =
      header_of({.secret = random_secret(), .identity = "model=a\n"});
  constexpr size_t kUsed = 224 + 8;
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> bytes = good;
    flip_a_bit(std::span(bytes).first(kUsed));
    EXPECT_THROW((void)read_header(bytes), Error);
    bytes = good;
    bytes.resize(static_cast<size_t>(testing::random_int(0, kUsed - 1)));
    EXPECT_THROW((void)read_header(bytes), Error);
  }
  std::vector<std::byte> older = good;
  older[8] = std::byte{0};
  testing::expect_invalid({"has version 0 of the format, this heddle has 1"},
                          [&] { (void)read_header(older); });
}

TEST(PageRecord, IsReadAsItWasWrittenAndInItsSlotAlone) {
  const PageSecret secret = random_secret();
  const PageRecord record{.id = StoredPage{9},
                          .parent = StoredPage{3},
                          .last_use = 77,
                          .acts = {1, 2},
                          .checksum = {3, 4},
                          .chain = {8, 9},
                          .tokens = {5, -6, 7}};
  std::vector<std::byte> bytes(record_bytes(3));
  PageRecord read;
  read.tokens.resize(3);
  EXPECT_EQ(read_record(bytes, 5, secret, read), RecordState::kFree);
  write_record(record, 5, secret, bytes);
  ASSERT_EQ(read_record(bytes, 5, secret, read), RecordState::kGood);
  EXPECT_EQ(read.id, record.id);
  EXPECT_EQ(read.parent, record.parent);
  EXPECT_EQ(read.last_use, record.last_use);
  EXPECT_EQ(read.acts, record.acts);
  EXPECT_EQ(read.checksum, record.checksum);
  EXPECT_EQ(read.chain, record.chain);
  EXPECT_EQ(read.tokens, record.tokens);
  EXPECT_EQ(read_record(bytes, 6, secret, read), RecordState::kDamaged);
  EXPECT_EQ(read_record(bytes, 5, random_secret(), read), RecordState::kDamaged);
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> damaged = bytes;
    flip_a_bit(damaged);
    ASSERT_EQ(read_record(damaged, 5, secret, read), RecordState::kDamaged);
  }
}

TEST(PageRecord, AParentComesBeforeItsChildren) {
  const PageSecret secret = random_secret();
  std::vector<std::byte> bytes(record_bytes(0));
  PageRecord read;
  for (const auto& [id, parent] : {std::pair{0, 0}, {3, 3}, {3, 4}}) {
    write_record({.id = StoredPage(id),
                  .parent = StoredPage(parent),
                  .last_use = 0,
                  .acts = {},
                  .checksum = {},
                  .chain = {},
                  .tokens = {}},
                 0, secret, bytes);
    EXPECT_EQ(read_record(bytes, 0, secret, read), RecordState::kDamaged);
  }
}

}  // namespace
}  // namespace heddle
