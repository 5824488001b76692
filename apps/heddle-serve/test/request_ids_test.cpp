#include "routes/request_ids.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace heddle::serve {
namespace {

std::string id_of(const std::string& given) {
  HttpRequest request;
  request.headers = {{"x-request-id", given}};
  return request_id_of(request);
}

TEST(RequestIds, AreTakenWhereAHeaderMayHaveThem) {
  const std::string longest(128, 'a');
  for (const std::string& id : {std::string("7"), std::string("a-b_c.d:/+=~!"), longest}) {
    EXPECT_EQ(id_of(id), id);
  }
}

TEST(RequestIds, OthersGetANewOne) {
  std::set<std::string> ids;
  for (const std::string& given :
       {std::string(), std::string("a b"), std::string("a\tb"), std::string("\xc3\xa4"),
        std::string("a\x7f"), std::string(129, 'a')}) {
    const std::string id = id_of(given);
    EXPECT_EQ(id.size(), 24U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(ids.insert(id).second);
  }
  EXPECT_TRUE(ids.insert(request_id_of({})).second);
}

TEST(TraceParents, AreReadAsTheStandardHasThem) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", parent = "00f067aa0ba902b7";
  const std::string whole = "00-" + trace + "-" + parent + "-01";
  for (const std::string& header : {whole, "cc-" + trace + "-" + parent + "-01-later"}) {
    EXPECT_EQ(trace_parent_of(header).trace_id, trace);
    EXPECT_EQ(trace_parent_of(header).parent_id, parent);
  }
  const std::string zeros(32, '0');
  for (const std::string& header :
       {std::string(), whole.substr(0, 54), whole + "-x", "ff-" + trace + "-" + parent + "-01",
        "00-" + zeros + "-" + parent + "-01", "00-" + trace + "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent + "-01", "00_" + whole.substr(3),
        "0g-" + whole.substr(3), "00-" + trace + "-" + parent + "-0x", whole + "0",
        "cc-" + trace + "-" + parent + "-01x"}) {
    EXPECT_EQ(trace_parent_of(header).trace_id, "") << header;
    EXPECT_EQ(trace_parent_of(header).parent_id, "") << header;
  }
}

}  // namespace
}  // namespace heddle::serve
