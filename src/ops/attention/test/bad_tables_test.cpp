// Wrong page tables on the CPU: an error before anything is written.
#include "ops/attention/test/bad_tables_test_body.h"
#include "testing/small_sizes.h"

namespace heddle::testing {
namespace {

class BadTablesOf : public ::testing::TestWithParam<TableOp> {};

TEST_P(BadTablesOf, AreErrorsBeforeAnythingIsWritten) {
  Mirror mirror;
  const ExecContext ctx;
  const auto nothing = []() -> std::optional<Fault> { return std::nullopt; };
  check_bad_tables<half>(GetParam(), ctx, mirror, small_or(400, 5000), nothing);
  check_bad_tables<bfloat16>(GetParam(), ctx, mirror, small_or(400, 5000), nothing);
}

INSTANTIATE_TEST_SUITE_P(Ops, BadTablesOf, ::testing::ValuesIn(kTableOps),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace heddle::testing
