// Schemas as pydantic, zod, OpenAI's examples and OpenAPI pages have them, in
// tests/fixtures/schemas: answers that fit and such that do not.
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/rules/schema/test/schema_answers.h"

namespace heddle::grammar {
namespace {

using nlohmann::ordered_json;

TEST(RealSchemasTest, TakeTheirAnswersCompactAndIndented) {
  if (!has_library()) GTEST_SKIP() << "built without structured output";
  int num_schemas = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(HEDDLE_SOURCE_DIR) +
                                                               "/tests/fixtures/schemas")) {
    std::ifstream file(entry.path());
    const ordered_json given = ordered_json::parse(file);
    const auto format = testing::compiled(given.at("schema").dump());
    for (const ordered_json& answer : given.at("right")) {
      EXPECT_TRUE(testing::takes(*format, answer.dump())) << entry.path() << ' ' << answer;
      EXPECT_TRUE(testing::takes(*format, answer.dump(2))) << entry.path() << ' ' << answer;
      EXPECT_TRUE(testing::takes(*format, answer.dump(4))) << entry.path() << ' ' << answer;
    }
    for (const ordered_json& answer : given.at("wrong")) {
      EXPECT_FALSE(testing::takes(*format, answer.dump())) << entry.path() << ' ' << answer;
    }
    ++num_schemas;
  }
  EXPECT_GE(num_schemas, 12);
}

}  // namespace
}  // namespace heddle::grammar
