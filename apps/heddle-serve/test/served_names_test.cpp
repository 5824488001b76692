#include "service/served_names.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "api/api_error.h"
#include "temp_folder.h"

namespace heddle::serve {
namespace {

TEST(ServedNames, AModelIsCalledAsItsFileOrFolder) {
  const testing::TempFolder temporary;
  const std::filesystem::path folder = temporary.path();
  const auto make = [&folder](const std::string& name) {
    std::filesystem::create_directories(folder / name);
    return (folder / name).string();
  };
  EXPECT_EQ(usual_name(make("SmolLM2-135M")), "SmolLM2-135M");
  EXPECT_EQ(usual_name(make("SmolLM2-135M") + "/"), "SmolLM2-135M");
  EXPECT_EQ(usual_name(make("SmolLM2-135M") + "/../SmolLM2-135M/."), "SmolLM2-135M");
  EXPECT_EQ(usual_name(make("v1.5.gguf-copies")), "v1.5.gguf-copies");
  EXPECT_EQ(usual_name(temporary.write("Qwen3-0.6B.Q4_1.gguf", "")), "Qwen3-0.6B.Q4_1");
  EXPECT_EQ(usual_name(temporary.write("Big-00001-of-00003.gguf", "")), "Big");
  EXPECT_EQ(usual_name(temporary.write("plain", "")), "plain");
  EXPECT_EQ(usual_name("ORG/Some-Model"), "ORG/Some-Model") << "a name of the hub";
  EXPECT_EQ(usual_name(make("models--ORG--Some-Model--x/snapshots/0123abc")), "ORG/Some-Model--x");
  EXPECT_EQ(usual_name(make("models--gpt2/snapshots/0123abc")), "0123abc") << "it has no owner";
  EXPECT_EQ(usual_name(make("other/snapshots/0123abc")), "0123abc");
}

TEST(ServedNames, TheBaseModelHasSeveral) {
  ServedNames names({.listed = {"one", "ORG/two"}, .others = {"base", "a:b"}}, "",
                    "/nowhere/model");
  names.add("sql", {.path = "x", .is_added = true});
  EXPECT_EQ(names.base(), "one");
  for (const char* name : {"", "one", "ORG/two", "base", "a:b"}) {
    Request request;
    names.resolve({.model = name}, request);
    EXPECT_EQ(request.adapter, "") << name;
  }
  for (const char* name : {"sql", "one:sql", "ORG/two:sql", "base:sql", "a:b:sql"}) {
    Request request;
    names.resolve({.model = name}, request);
    EXPECT_EQ(request.adapter, "sql") << name;
  }
  for (const char* name : {"two", "a", "a:sql", "one:", ":sql", "one:base", "sql:one"}) {
    Request request;
    EXPECT_THROW(names.resolve({.model = name}, request), ApiError) << name;
  }
}

}  // namespace
}  // namespace heddle::serve
