#include "engine/cache/page_index.h"

#include <map>

#include "stored_pages.h"

namespace heddle {
namespace {

using State = PageIndex::State;

class PageIndexTest : public ::testing::Test {
 protected:
  PageIndexTest() {
    for (std::byte& byte : secret_) byte = static_cast<std::byte>(testing::random_int(0, 255));
  }
  PageIndex make(int64_t num_slots) { return {num_slots, secret_}; }

  /// A page of one token; null where it has found no slot.
  static PageIndex::Entry* add(PageIndex& index, StoredPage parent, int32_t token) {
    const std::vector<int32_t> tokens{token};
    PageIndex::Entry& entry = index.add({.parent = parent, .acts = {}, .tokens = tokens});
    const std::optional<int64_t> slot = index.take_slot();
    if (!slot) {
      index.lose(entry);
      return nullptr;
    }
    index.set_written(entry, *slot);
    return &entry;
  }
  static PageIndex::Entry* find(PageIndex& index, StoredPage parent, int32_t token) {
    const std::vector<int32_t> tokens{token};
    return index.find({.parent = parent, .acts = {}, .tokens = tokens});
  }

  PageSecret secret_;
};

TEST_F(PageIndexTest, FindsAPageByParentTokensAndActs) {
  PageIndex index = make(10);
  const StoredPage first = add(index, StoredPage::kRoot, 5)->record.id;
  const StoredPage second = add(index, first, 5)->record.id;
  EXPECT_NE(first, second);
  EXPECT_EQ(find(index, StoredPage::kRoot, 5)->record.id, first);
  EXPECT_EQ(find(index, first, 5)->record.id, second);
  EXPECT_EQ(find(index, second, 5), nullptr);
  EXPECT_EQ(find(index, first, 6), nullptr);
  const std::vector<int32_t> tokens{5};
  EXPECT_EQ(index.find({.parent = first, .acts = {1, 0}, .tokens = tokens}), nullptr);
}

TEST_F(PageIndexTest, ThePageUsedLongestAgoGoesFirst) {
  PageIndex index = make(3);
  for (int token = 0; token < 3; ++token) add(index, StoredPage::kRoot, token);
  index.touch(*find(index, StoredPage::kRoot, 0));
  ASSERT_NE(add(index, StoredPage::kRoot, 3), nullptr);
  EXPECT_EQ(find(index, StoredPage::kRoot, 1), nullptr);
  EXPECT_EQ(index.num_evicted(), 1);
  EXPECT_EQ(index.num_written(), 3);
  index.begin_read(*find(index, StoredPage::kRoot, 2));
  ASSERT_NE(add(index, StoredPage::kRoot, 4), nullptr);
  EXPECT_NE(find(index, StoredPage::kRoot, 2), nullptr) << "it is being read";
  EXPECT_EQ(find(index, StoredPage::kRoot, 0), nullptr);
}

TEST_F(PageIndexTest, LeavesGoBeforeTheirParents) {
  PageIndex index = make(3);
  PageIndex::Entry* const first = add(index, StoredPage::kRoot, 0);
  PageIndex::Entry* const second = add(index, first->record.id, 1);
  add(index, second->record.id, 2);
  EXPECT_EQ(add(index, find(index, second->record.id, 2)->record.id, 3), nullptr)
      << "a chain longer than the store keeps its beginning";
  for (const int32_t token : {10, 11}) ASSERT_NE(add(index, StoredPage::kRoot, token), nullptr);
  EXPECT_NE(find(index, StoredPage::kRoot, 0), nullptr);
  EXPECT_EQ(index.entries().size(), 3u);
  for (const int32_t token : {12, 13, 14}) ASSERT_NE(add(index, StoredPage::kRoot, token), nullptr);
  EXPECT_EQ(find(index, StoredPage::kRoot, 0), nullptr);
}

TEST_F(PageIndexTest, ALostPageWithChildrenGetsItsBytesAgain) {
  PageIndex index = make(2);
  PageIndex::Entry* const parent = add(index, StoredPage::kRoot, 0);
  const StoredPage id = parent->record.id;
  add(index, id, 1);
  index.lose(*parent);
  ASSERT_EQ(find(index, StoredPage::kRoot, 0), parent);
  EXPECT_EQ(parent->state, State::kLost);
  EXPECT_EQ(index.num_written(), 1);
  index.queue_again(*parent);
  index.set_written(*parent, *index.take_slot());
  EXPECT_NE(find(index, id, 1), nullptr);
  index.lose(*parent);
  index.lose(*find(index, id, 1));
  EXPECT_TRUE(index.entries().empty()) << "it went with its last child";
}

TEST_F(PageIndexTest, LoadLeavesOutWhatHasNoParentOrNoIdOfItsOwn) {
  std::map<uint64_t, Digest> chains;
  const auto record = [&](uint64_t id, uint64_t parent, int32_t token) {
    const Digest chain = chain_of(chains[parent], {}, std::vector<int32_t>{token}, secret_);
    chains[id] = chain;
    return PageRecord{.id = StoredPage{id},
                      .parent = StoredPage{parent},
                      .last_use = 100 - id,
                      .acts = {},
                      .checksum = {},
                      .chain = chain,
                      .tokens = {token}};
  };
  PageIndex index = make(20);
  const PageRecord first = record(2, 0, 1);
  PageRecord foreign = record(14, 2, 9);
  foreign.parent = StoredPage{5};
  index.load({{4, record(5, 2, 1)},  // found before its parent
              {0, first},
              {3, foreign},          // made for another parent than the one that has its id
              {1, record(7, 6, 1)},  // no parent
              {2, record(8, 7, 1)},  // whose parent was left out
              {6, record(9, 0, 1)},  // the content of 2
              {7, record(10, 9, 1)},
              {8, record(11, 0, 2)},  // two of an id
              {9, record(11, 0, 3)},
              {10, record(12, 11, 3)}});
  EXPECT_EQ(index.num_written(), 2);
  const StoredPage root = StoredPage::kRoot;
  ASSERT_NE(find(index, root, 1), nullptr);
  EXPECT_EQ(find(index, root, 1)->record.id, StoredPage{2});
  EXPECT_EQ(find(index, StoredPage{2}, 1)->slot, 4);
  EXPECT_EQ(find(index, root, 2), nullptr);
  std::map<int64_t, int> slots;
  for (int32_t token = 10; token < 28; ++token) {
    const PageIndex::Entry* entry = add(index, root, token);
    ASSERT_NE(entry, nullptr);
    EXPECT_GT(entry->record.id, StoredPage{12});
    EXPECT_GT(entry->record.last_use, 98u);
    ++slots[entry->slot];
  }
  EXPECT_EQ(slots.size(), 18u);
  EXPECT_EQ(slots.count(0) + slots.count(4), 0u);
  EXPECT_EQ(index.num_evicted(), 0);
}

TEST_F(PageIndexTest, NoIdIsGivenTwice) {
  PageIndex index = make(4);
  const StoredPage before = add(index, StoredPage::kRoot, 0)->record.id;
  index.clear();
  EXPECT_EQ(find(index, StoredPage::kRoot, 0), nullptr);
  EXPECT_FALSE(index.has_parent(before));
  EXPECT_GT(add(index, StoredPage::kRoot, 0)->record.id, before);
  EXPECT_EQ(index.num_written(), 1);
}

/// Random operations against plain rules.
TEST_F(PageIndexTest, KeepsItsRulesUnderRandomUse) {
  PageIndex index = make(8);
  std::vector<StoredPage> ids{StoredPage::kRoot};
  for (int i = 0; i < 3000; ++i) {
    const StoredPage parent =
        ids[static_cast<size_t>(testing::random_int(0, int64_t(ids.size()) - 1))];
    const auto token = static_cast<int32_t>(testing::random_int(0, 2));
    PageIndex::Entry* const entry = find(index, parent, token);
    if (entry == nullptr && index.has_parent(parent)) {
      add(index, parent, token);
    } else if (entry != nullptr && entry->state == State::kLost) {
      index.queue_again(*entry);
      if (const auto slot = index.take_slot()) {
        index.set_written(*entry, *slot);
      } else {
        index.lose(*entry);
      }
    } else if (entry != nullptr) {
      testing::random_int(0, 9) == 0 ? index.lose(*entry) : index.touch(*entry);
    }
    ids.assign(1, StoredPage::kRoot);
    std::map<StoredPage, int> children;
    std::map<int64_t, int> slots;
    for (const auto& [id, e] : index.entries()) {
      ids.push_back(id);
      ++children[e.record.parent];
      ASSERT_TRUE(index.has_parent(e.record.parent));
      if (e.state != State::kWritten) continue;
      ++slots[e.slot];
      ASSERT_LT(e.slot, 8);
    }
    ASSERT_EQ(static_cast<int64_t>(slots.size()), index.num_written());
    for (const auto& [id, e] : index.entries()) {
      ASSERT_EQ(e.num_children, children[id]);
      ASSERT_TRUE(e.state == State::kWritten || e.num_children > 0);
    }
  }
}

}  // namespace
}  // namespace heddle
