#include "fetch/download.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fetch/fetch_error.h"
#include "fetch/partial_file.h"
#include "fetch/test/made_source.h"
#include "temp_folder.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using heddle::testing::TempFolder;

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Download : public ::testing::Test {
 protected:
  Download() {
    std::mt19937_64 random{std::random_device{}()};
    std::string content(1000, '\0');
    for (char& byte : content) byte = static_cast<char>(random());
    source_.contents = {{"weights", content}};
  }

  void run(const RemoteFile& file) {
    download(source_, listing_, file, partial(), place(), std::stop_token());
  }
  void run() { run(announced()); }
  /// What the download fails with.
  std::optional<FetchFault> fault(const RemoteFile& file) {
    try {
      run(file);
    } catch (const FetchError& error) {
      return error.fault();
    }
    return std::nullopt;
  }
  [[nodiscard]] RemoteFile announced() const { return file_of("weights", content()); }
  [[nodiscard]] const std::string& content() const { return source_.contents.at("weights"); }
  [[nodiscard]] std::string partial() const { return (folder_.path() / "part").string(); }
  [[nodiscard]] std::string place() const { return (folder_.path() / "place").string(); }

  TempFolder folder_;
  MadeSource source_;
  RemoteListing listing_{.id = "loom/sql", .version = std::string(40, 'a')};
};

TEST_F(Download, BringsAFileAndLeavesNothingElse) {
  run();
  EXPECT_EQ(content_of(place()), content());
  EXPECT_FALSE(fs::exists(partial()));
  source_.reads.clear();
  run();
  EXPECT_TRUE(source_.reads.empty());  // it is there
}

TEST_F(Download, BringsAnEmptyFile) {
  source_.contents["weights"] = "";
  run();
  EXPECT_TRUE(fs::exists(place()));
  EXPECT_EQ(fs::file_size(place()), 0u);
}

TEST_F(Download, GoesOnWhereItWasCut) {
  source_.cut_after = 301;
  for (const bool fails : {false, true}) {
    source_.fails = fails;
    source_.reads.clear();
    fs::remove(place());
    run();
    EXPECT_EQ(content_of(place()), content());
    EXPECT_EQ(source_.reads, (std::vector<int64_t>{0, 301, 602, 903}));
  }
}

TEST_F(Download, GoesOnWhereAnEarlierRunEnded) {
  std::ofstream(partial(), std::ios::binary) << content().substr(0, 444);
  run();
  EXPECT_EQ(content_of(place()), content());
  EXPECT_EQ(source_.reads, std::vector<int64_t>{444});
}

TEST_F(Download, BeginsAnewWhereTheSourceCannotGoOn) {
  std::ofstream(partial(), std::ios::binary) << content().substr(0, 444);
  source_.goes_on = false;
  run();
  EXPECT_EQ(content_of(place()), content());
}

TEST_F(Download, EndsWhereNoByteComes) {
  source_.cut_after = 0;
  source_.fails = true;
  EXPECT_EQ(fault(announced()), FetchFault::kUnavailable);
  EXPECT_EQ(source_.reads.size(), 4u);
  EXPECT_FALSE(fs::exists(place()));
}

TEST_F(Download, RefusesAnotherContentAndForgetsIt) {
  RemoteFile file = announced();
  source_.contents["weights"][500] ^= 1;
  EXPECT_EQ(fault(file), FetchFault::kWrong);
  EXPECT_FALSE(fs::exists(place()));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Download, RefusesWhatAnEarlierRunLeftOfAnotherContent) {
  std::string other = content().substr(0, 444);
  other[7] ^= 1;
  std::ofstream(partial(), std::ios::binary) << other;
  EXPECT_EQ(fault(announced()), FetchFault::kWrong);
  run();  // and the next one begins anew
  EXPECT_EQ(content_of(place()), content());
}

TEST_F(Download, RefusesMoreThanWasAnnounced) {
  RemoteFile file = announced();
  source_.contents["weights"] += "more";
  EXPECT_EQ(fault(file), FetchFault::kWrong);
  EXPECT_FALSE(fs::exists(place()));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Download, DropsAPartThatIsTooLong) {
  std::ofstream(partial(), std::ios::binary) << std::string(5000, 'x');
  run();
  EXPECT_EQ(content_of(place()), content());
}

TEST_F(Download, FollowsNoLink) {
  const std::string victim = folder_.write("victim", "kept");
  fs::create_symlink(victim, partial());
  EXPECT_EQ(fault(announced()), FetchFault::kRefused);
  fs::remove(partial());
  fs::create_hard_link(victim, partial());
  EXPECT_EQ(fault(announced()), FetchFault::kRefused);
  fs::remove(partial());
  ASSERT_EQ(::mkfifo(partial().c_str(), 0600), 0);
  EXPECT_EQ(fault(announced()), FetchFault::kRefused);
  fs::remove(partial());
  fs::create_symlink(victim, place());  // which the file replaces
  run();
  EXPECT_EQ(content_of(victim), "kept");
  EXPECT_EQ(content_of(place()), content());
  EXPECT_FALSE(fs::is_symlink(place()));
}

TEST_F(Download, OfManyAtOnceOneReads) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      const MadeSource& source = source_;
      download(source, listing_, announced(), partial(), place(), std::stop_token());
    });
  }
  threads.clear();
  EXPECT_EQ(content_of(place()), content());
  EXPECT_EQ(source_.reads, std::vector<int64_t>{0});
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Download, StopsWhileItWaits) {
  std::stop_source stop;
  const RemoteFile file = announced();
  const PartialFile other(partial(), file, std::stop_token());
  std::jthread stopping([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  EXPECT_THROW(download(source_, listing_, file, partial(), place(), stop.get_token()), FetchError);
}

TEST(MakeFolders, MakesThemButThroughNoLink) {
  const TempFolder folder, elsewhere;
  const std::string root = (folder.path() / "new" / "root").string();
  make_folders(root, "a/b");
  make_folders(root, "a/b");
  EXPECT_TRUE(fs::is_directory(root + "/a/b"));
  fs::create_directory_symlink(elsewhere.path(), root + "/link");
  EXPECT_THROW(make_folders(root, "link/c"), FetchError);
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  std::ofstream(root + "/file") << "text";
  EXPECT_THROW(make_folders(root, "file"), FetchError);
}

TEST(ContentHash, HasTheValuesOfTheTools) {
  const auto hash = [](ContentHash::Kind kind, std::string_view text, int64_t part_bytes = 0) {
    ContentHasher hasher({.kind = kind, .part_bytes = part_bytes}, std::ssize(text));
    hasher.add(text.substr(0, text.size() / 2));
    hasher.add(text.substr(text.size() / 2));
    return hasher.hex();
  };
  // sha256sum, git hash-object and md5sum of "loom\n".
  EXPECT_EQ(hash(ContentHash::Kind::kSha256, "loom\n"),
            "7007d1800b82ba2b7e714f6206b7f46d2e28bef9aaf9447290d77d7e660ca238");
  EXPECT_EQ(hash(ContentHash::Kind::kGitBlob, "loom\n"),
            "e0b1a82781fc19f2056a1627fc23b2c246f1cc8b");
  EXPECT_EQ(hash(ContentHash::Kind::kMd5, "loom\n"), "218d218c1ca08c6983b9602fec075f9d");
  // Of an upload to S3 in parts of 2 and of 5 bytes, by Python's hashlib.
  EXPECT_EQ(hash(ContentHash::Kind::kMd5OfParts, "loom\n", 2),
            "497b54d5ce8f48ad86936e4bf876f52c-3");
  EXPECT_EQ(hash(ContentHash::Kind::kMd5OfParts, "loom\n", 5),
            "7f7ad397fd4e1ee8c244d8c6a9141f30-1");
  EXPECT_TRUE(is_hash({ContentHash::Kind::kMd5OfParts, std::string(32, '0') + "-12", 5}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kMd5OfParts, std::string(32, '0') + "-12", 0}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kMd5OfParts, std::string(32, '0') + "-", 5}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kMd5OfParts, std::string(32, '0'), 5}));
  EXPECT_TRUE(is_hash({ContentHash::Kind::kMd5, std::string(32, '0')}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kMd5, std::string(32, 'A')}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kSha256, std::string(40, '0')}));
  EXPECT_FALSE(is_hash({ContentHash::Kind::kSha256, ""}));
}

}  // namespace
}  // namespace heddle::fetch
