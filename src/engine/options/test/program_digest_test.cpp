#include "engine/options/program_digest.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(ProgramDigest, IsThatOfThisProgram) {
  const Digest digest = program_digest();
  EXPECT_EQ(digest, program_digest());
  EXPECT_NE(digest, Hasher().digest()) << "of nothing";
}

TEST(ProgramDigest, TheProcessorHasNameAndLibrary) {
  const std::string name = processor_name();
  EXPECT_EQ(name, processor_name());
  EXPECT_NE(name.find(", glibc 2."), std::string::npos) << name;
  EXPECT_EQ(name.find('\n'), std::string::npos) << name;
}

}  // namespace
}  // namespace heddle
