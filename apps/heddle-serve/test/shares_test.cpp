#include "service/shares.h"

#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "routes/keys.h"
#include "service/tenants.h"
#include "service/waiting_line.h"
#include "temp_folder.h"

namespace heddle::serve {
namespace {

class Keys : public ::testing::Test {
 protected:
  KeyFile read(const std::string& text) const {
    return {folder_.write("keys", text), "--api-key-file", "key-"};
  }
  /// What the file is refused with; never a key.
  std::string refusal(const std::string& text) const {
    const std::string message = testing::message_of([&] { (void)read(text); });
    EXPECT_EQ(message.find("sesame"), std::string::npos) << message;
    return message;
  }
  static std::string holder(const KeyFile& file, const std::string& key) {
    const KeyHolder* const found = file.find(key);
    return found == nullptr ? "none" : found->name;
  }

  testing::TempFolder folder_;
};

TEST_F(Keys, HaveNamesAndWeights) {
  const KeyFile file =
      read("reports sesame-1 0.5\n\n  chat\tsesame-2\r\nchat sesame-3 1\nsesame-4  \n");
  EXPECT_EQ(holder(file, "sesame-1"), "reports");
  EXPECT_EQ(file.find("sesame-1")->weight, 0.5);
  EXPECT_EQ(holder(file, "sesame-2"), "chat");
  EXPECT_EQ(holder(file, "sesame-3"), "chat") << "several keys of one holder";
  EXPECT_EQ(holder(file, "sesame-4"), "key-5") << "by its line";
  EXPECT_EQ(file.find("sesame-4")->weight, 1);
  for (const char* const key : {"", "sesame", "sesame-44", "chat", "reports", "key-5", "0.5"}) {
    EXPECT_EQ(holder(file, key), "none") << key;
  }
}

TEST_F(Keys, OfOldFilesAreHoldersOfTheirOwn) {
  const KeyFile file = read("sesame-1\nsesame-2\nsesame-1\n");
  EXPECT_EQ(holder(file, "sesame-1"), "key-1");
  EXPECT_EQ(holder(file, "sesame-2"), "key-2");
  EXPECT_TRUE(KeyFile("", "--api-key-file", "key-").is_empty());
}

TEST_F(Keys, AreRefusedWithTheirLineAndWithoutThemselves) {
  const std::pair<const char*, const char*> wrong[] = {
      {"a sesame 1 2\n", "line 1 has 4 words, expected KEY, NAME KEY or NAME KEY WEIGHT"},
      {"a/b sesame\n", "line 1: its name, the first word, has other characters than"},
      {"sesame-sesame-sesame-sesame-sesame name\n", "or more than 32"},
      {"\na sesame 0\n", "line 2: its weight, the third word, is no number from 0.001 to 1000"},
      {"a sesame nan\n", "is no number"},
      {"a sesame 1x\n", "is no number"},
      {"a sesame sesame\n", "is no number"},
      {"a sesame-1 2\na sesame-2\n", "line 2: its name has another weight in line 1"},
      {"a sesame\nb sesame\n", "line 2: its key is that of line 1"},
      {"sesame\na sesame\n", "line 2: its key is that of line 1"},
      {"sesame\nkey-1 sesame-2\n", "its name is that of the key without a name in line 1"},
      {" \n\r\n", "holds no key"}};
  for (const auto& [text, sentence] : wrong) {
    EXPECT_NE(refusal(text).find(sentence), std::string::npos) << refusal(text);
  }
}

TEST(Shares, AreOfTheKeyOrTheAdapter) {
  app::ServeOptions options;
  options.adapter_weights = {{"sql", 3}, {"base", 0.5}};
  const KeyHolder holder{.name = "reports", .weight = 2};
  Request request;
  set_share(options, &holder, request);
  EXPECT_EQ(tenant_of(options, request), "");
  EXPECT_EQ(request.tenant_weight, 1);
  options.fairness = "key";
  set_share(options, &holder, request);
  EXPECT_EQ(tenant_of(options, request), "reports");
  EXPECT_EQ(request.tenant, "reports");
  EXPECT_EQ(request.tenant_weight, 2);
  options.fairness = "adapter";
  request = {};
  set_share(options, &holder, request);
  EXPECT_EQ(tenant_of(options, request), "base");
  EXPECT_EQ(request.tenant_weight, 0.5);
  request.adapters = {{"sql"}, {"cron"}};
  set_share(options, nullptr, request);
  EXPECT_EQ(tenant_of(options, request), "sql");
  EXPECT_EQ(request.tenant, "") << "the engine finds it";
  EXPECT_EQ(request.tenant_weight, 3);
}

TEST(Shares, WhatHasNoEffectIsRefused) {
  app::ServeOptions options;
  check_shares(options);
  options.fairness = "key";
  testing::expect_invalid({"--fairness key: there are no keys"}, [&] { check_shares(options); });
  options.api_key_file = "keys";
  check_shares(options);
  options.adapter_weights = {{"sql", 2}};
  testing::expect_invalid({"--adapter-weight: adapters do not share"},
                          [&] { check_shares(options); });
  options.fairness = "adapter";
  check_shares(options);
}

/// So many rows of one tenant that sends them one by one, and then of others in turn.
TEST(WaitingLine, OneTenantTakesHalfOfItAndOthersFindRoom) {
  for (int64_t length = 0; length < 40; ++length) {
    WaitingLine line{.num_places = 3, .length = length};
    int64_t own = 0;
    while (line.has_room(1) && line.has_room_for_tenant(1, own)) ++own, ++line.num_rows;
    EXPECT_EQ(own, 3 + (length + 1) / 2);
    int64_t num_others = 0;
    for (; line.has_room(1) && line.has_room_for_tenant(1, 0); ++line.num_rows) ++num_others;
    EXPECT_EQ(num_others, length / 2) << "each of them another tenant";
  }
}

TEST(WaitingLine, ManyRowsAtOnceAreTakenLikeOneAfterTheOther) {
  for (int64_t length = 0; length < 30; ++length) {
    for (int64_t others = 0; others < 8; ++others) {
      WaitingLine one_by_one{.num_places = 4, .length = length, .num_rows = others};
      const WaitingLine at_once = one_by_one;
      int64_t own = 0;
      while (one_by_one.has_room(1) && one_by_one.has_room_for_tenant(1, own)) {
        ++own, ++one_by_one.num_rows;
      }
      for (int64_t count = 1; count < 40; ++count) {
        EXPECT_EQ(at_once.has_room(count) && at_once.has_room_for_tenant(count, 0), count <= own)
            << length << " " << others << " " << count;
      }
    }
  }
}

TEST(Tenants, AreCountedAndOnlySoManyAreShown) {
  Tenants tenants;
  const auto name = [](size_t i) { return "t" + std::to_string(i); };
  for (size_t i = 0; i < Tenants::kMostShown + 50; ++i) tenants.add_waiting(name(i), 2);
  EXPECT_EQ(tenants.shown().size(), Tenants::kMostShown + 1);
  EXPECT_EQ(tenants.shown().at("other").num_waiting, 50);
  EXPECT_EQ(tenants.num_waiting(name(Tenants::kMostShown + 7)), 1) << "exact for all";
  tenants.add_waiting(name(0), 3);
  tenants.begin(name(0));
  Completion answer;
  answer.token_ids = {1, 2, 3};
  answer.prompt_tokens = 7;
  tenants.count_tokens(name(0), answer);
  const TenantUse& use = tenants.shown().at(name(0));
  EXPECT_EQ(use.weight, 3);
  EXPECT_EQ(use.num_waiting, 1);
  EXPECT_EQ(use.num_running, 1);
  EXPECT_EQ(use.prompt_tokens, 7);
  EXPECT_EQ(use.answer_tokens, 3);
  tenants.end(name(0), true);
  tenants.end(name(0), false);
  EXPECT_EQ(use.num_running + use.num_waiting, 0);
  EXPECT_EQ(tenants.num_waiting(name(0)), 0);
  for (size_t i = 1; i < Tenants::kMostShown + 50; ++i) tenants.end(name(i), false);
  EXPECT_EQ(tenants.shown().at("other").num_waiting, 0);
}

}  // namespace
}  // namespace heddle::serve
