#include "engine/cache/page_identity.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle {
namespace {

TEST(PageIdentity, IsALineForEachPart) {
  PageIdentity identity;
  identity.add("model", "a b=c");
  identity.add("page_size", 16);
  identity.add("adapters", "");
  EXPECT_EQ(identity.text(), "model=a b=c\npage_size=16\nadapters=\n");
}

TEST(PageIdentity, RefusesWhatWouldReadAsAnotherPart) {
  PageIdentity identity;
  identity.add("model", "a");
  testing::expect_invalid({"model", "twice"}, [&] { identity.add("model", "b"); });
  testing::expect_invalid({"control characters"}, [&] { identity.add("x", "a\nmodel=b"); });
  testing::expect_invalid({"the name 'a=b'"}, [&] { identity.add("a=b", "c"); });
  testing::expect_invalid({"the name ''"}, [&] { identity.add("", "c"); });
  testing::expect_invalid({"at most 65536"},
                          [&] { identity.add("y", std::string(PageIdentity::kMaxBytes, 'a')); });
  EXPECT_EQ(identity.text(), "model=a\n");
}

TEST(PageIdentity, ADifferenceNamesThePart) {
  const std::string ours = "model=a\npage_size=16\n";
  EXPECT_EQ(identity_difference("model=a\npage_size=32\n", ours),
            "was made with page_size 32, this engine has 16");
  EXPECT_EQ(identity_difference("page_size=16\n", ours),
            "was made without model, this engine has a");
  EXPECT_EQ(identity_difference(ours + "gpu=H100\n", ours),
            "was made with gpu=H100, which this engine does not have");
  EXPECT_EQ(identity_difference("page_size=16\nmodel=a\n", ours), "was made for another engine");
  EXPECT_EQ(identity_difference("model=\x01\npage_size=16", ours),
            "was made with model \\x01, this engine has a");
  EXPECT_EQ(identity_difference("", ours), "was made without model, this engine has a");
  EXPECT_EQ(identity_difference("model", ""),
            "was made with model, which this engine does not have");
}

}  // namespace
}  // namespace heddle
