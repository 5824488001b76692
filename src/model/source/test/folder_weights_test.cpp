#include "model/source/folder_weights.h"

#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "small_folder.h"

namespace heddle::model {
namespace {

using testing::expect_invalid;
using testing::SmallFolder;
using testing::TempFolder;

constexpr const char* kIndex = "model.safetensors.index.json";

/// Files of one tensor each.
void write_parts(const TempFolder& folder) {
  folder.write("one.safetensors", SmallFolder::weights_of({{"a", {2}}}));
  folder.write("two.safetensors", SmallFolder::weights_of({{"b", {3, 2}}}));
}
void expect_wrong(const TempFolder& folder, const std::string& index,
                  std::initializer_list<const char*> parts) {
  folder.write(kIndex, index);
  expect_invalid(parts, [&] { const FolderWeights weights(folder.path().string()); });
}

TEST(FolderWeights, ReadsTheFilesOfAnIndex) {
  const TempFolder folder;
  write_parts(folder);
  folder.write(kIndex, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const FolderWeights weights(folder.path().string());
  EXPECT_TRUE(weights.contains("a"));
  EXPECT_EQ(weights.tensor("b").rows, 3);
  EXPECT_EQ(weights.tensor("b").columns, 2);
  EXPECT_EQ(weights.names().size(), 2u);
  expect_invalid({kIndex, "has no tensor 'c'"}, [&] { (void)weights.tensor("c"); });
}

TEST(FolderWeights, StaysInItsFolder) {
  const TempFolder folder;
  write_parts(folder);
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".",
                           "", ".hidden", "one\\u0000.safetensors"}) {
    expect_wrong(folder, R"({"weight_map": {"a": ")" + std::string(name) + R"("}})",
                 {kIndex, "weight_map puts 'a' into something that is not a file of this folder"});
  }
  expect_wrong(folder, R"({"weight_map": {"a": 3}})", {kIndex, "puts 'a'"});
  // What a terminal obeys, and what is longer than any name, are no part of an error.
  for (const std::string& name : {std::string("\\u001b[31mRED\\u0007"), std::string(5000, 'a')}) {
    const std::string index = R"({"weight_map": {"a": ")" + name + R"("}})";
    expect_wrong(folder, index, {kIndex, "puts 'a' into something that is not a file"});
    const std::string message =
        testing::message_of([&] { const FolderWeights weights(folder.path().string()); });
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
    EXPECT_LT(message.size(), 500u);
  }
}

TEST(FolderWeights, ChecksThatTheIndexIsRight) {
  const TempFolder folder;
  write_parts(folder);
  expect_wrong(
      folder,
      R"({"weight_map": {"a": "two.safetensors", "b": "two.safetensors", "c": "one.safetensors"}})",
      {kIndex, "puts 'a' into 'two.safetensors', but it is in ", "/one.safetensors"});
  expect_wrong(folder, R"({"weight_map": {"a": "three.safetensors"}})", {"three.safetensors"});
  expect_wrong(folder, R"({"weight_map": ["a"]})", {kIndex, "has no weight_map"});
  expect_wrong(folder, "{}", {kIndex, "has no weight_map"});
  expect_wrong(folder, "[]", {kIndex, "expected an object"});
}

/// As transformers, which asks the index for names of files alone.
TEST(FolderWeights, TellsWhatTheIndexListsAndNoFileHas) {
  const TempFolder folder;
  write_parts(folder);
  folder.write(kIndex, R"({"weight_map": {"c": "one.safetensors"}})");
  FolderWeights weights(folder.path().string());
  EXPECT_EQ(weights.missing(), std::vector<std::string>{"c"});
  EXPECT_FALSE(weights.contains("c"));
  ASSERT_TRUE(weights.contains("a"));
  weights.leave_out("a");
  EXPECT_FALSE(weights.contains("a"));
  for (const std::string_view name : weights.names()) EXPECT_NE(name, "a");
}

TEST(FolderWeights, RefusesATensorOfTwoFiles) {
  const TempFolder folder;
  folder.write("one.safetensors", SmallFolder::weights_of({{"a", {2}}}));
  folder.write("two.safetensors", SmallFolder::weights_of({{"a", {2}}, {"b", {3}}}));
  expect_wrong(folder, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})",
               {"two.safetensors: tensor 'a' is in another file too"});
}

}  // namespace
}  // namespace heddle::model
