#include "files/json_document.h"

#include <new>
#include <string>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "files/parse_json.h"
#include "heap_count.h"

namespace heddle::files {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Containers in containers of either kind, in each place; objects that grow past a few members.
const std::string kNested =
    R"({"a":[[1,[2,"a string that is longer than a short one"]],{"b":{"c":[{},[],null]}}],"d":{},)"
    R"("e":{"a":[true],"b":{"a":[{}]},"c":[1.5],"d":[[]],"e":{"f":0},"f":{"g":[0]},"g":[-1]},"h":[],)"
    R"("i":[[[[[[0]]]]]],"j":{"a":{"a":{"a":{"a":1}}}},"k":"text","l":[{"a":1},{"b":[2,3]}]})";

template <class Json>
class JsonDocuments : public ::testing::Test {};
using Kinds = ::testing::Types<json, ordered_json>;
TYPED_TEST_SUITE(JsonDocuments, Kinds);

TYPED_TEST(JsonDocuments, EndWithoutAskingForMemory) {
  for (const std::string& text : {kNested, '[' + kNested + ',' + kNested + ']'}) {
    int64_t num_allocations = 0;
    {
      const auto document = parse_json<TypeParam>(text, "a.json");
      EXPECT_EQ(document->dump(), TypeParam::parse(text).dump());
      num_allocations = testing::num_heap_allocations();
    }
    EXPECT_EQ(testing::num_heap_allocations(), num_allocations);
  }
}

/// Each call that asks for memory fails in turn; texts whose end is wrong leave half a document.
TYPED_TEST(JsonDocuments, AreReadOrRefusedWithoutMemory) {
  const std::string half = kNested.substr(0, kNested.size() - 1);
  for (const std::string& text : {kNested, half, half + R"(,"m":[{"n":[1)", half + R"(,"a":1})"}) {
    int64_t num_failures = 0, countdown = 0;
    do {
      countdown = num_failures + 1;
      try {
        const testing::FailingAllocation failing(countdown);
        (void)parse_json<TypeParam>(text, "a.json");
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(countdown, 0);
      } catch (const Error&) {
        EXPECT_NE(text, kNested);
      }
      num_failures += countdown == 0 ? 1 : 0;
    } while (countdown == 0);
    EXPECT_GT(num_failures, 100) << "few allocations were seen";
  }
}

TEST(AddMember, KeepsTheOthersInTheirOrder) {
  JsonDocument<ordered_json> document(ordered_json::object());
  std::string want;
  for (int i = 20; i > 0; --i) {
    const std::string key = "a key that is no short string " + std::to_string(i);
    add_member(*document, key) = ordered_json::parse("[{\"a\":" + std::to_string(i) + "}]");
    want += (want.empty() ? "{\"" : ",\"") + key + "\":[{\"a\":" + std::to_string(i) + "}]";
  }
  EXPECT_EQ(document->dump(), want + '}');
}

}  // namespace
}  // namespace heddle::files
