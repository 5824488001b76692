#include "model/adapters/projection.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace heddle::model {
namespace {

TEST(Projection, HasSevenNamesThatDiffer) {
  std::set<std::string> names;
  for (int p = 0; p < kNumProjections; ++p) names.insert(name(static_cast<Projection>(p)));
  EXPECT_EQ(names.size(), size_t{kNumProjections});
  EXPECT_EQ(names.count("gate_proj"), 1u);
}

}  // namespace
}  // namespace heddle::model
