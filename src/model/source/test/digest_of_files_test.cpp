#include "model/source/digest_of_files.h"

#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "temp_folder.h"

namespace heddle::model {
namespace {

Digest digest_with(int num_threads, const std::vector<std::string>& paths) {
  ThreadPool threads(num_threads);
  return digest_of_files({.threads = &threads}, paths);
}

TEST(DigestOfFiles, IsOfWhatTheyHoldInTheirOrder) {
  const testing::TempFolder folder;
  std::string large(size_t{40} << 20, 'x');  // three pieces
  const std::string a = folder.write("a", "one"), b = folder.write("b", "two"),
                    again = folder.write("again", "one"), whole = folder.write("whole", large);
  const Digest digest = digest_with(2, {a, b, whole});
  EXPECT_EQ(digest, digest_with(1, {again, b, whole})) << "under another name, by one thread";
  EXPECT_NE(digest, digest_with(2, {b, a, whole}));
  EXPECT_NE(digest_with(2, {a, b}), digest_with(2, {folder.write("c", "onetwo")}));
  large[size_t{33} << 20] = 'y';
  EXPECT_NE(digest, digest_with(2, {a, b, folder.write("other", large)}));
  testing::expect_invalid({"missing"},
                          [&] { (void)digest_with(2, {(folder.path() / "missing").string()}); });
}

}  // namespace
}  // namespace heddle::model
