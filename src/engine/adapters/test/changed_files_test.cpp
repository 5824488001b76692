#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "expect_error.h"

// Files that are cut, written to, removed or replaced while an engine reads them.

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Makes an engine; when its first weights are there, `change` is called.
Engine load(const std::string& path, const std::function<void()>& change) {
  bool has_changed = false;
  EngineOptions options;
  options.model_path = path;
  options.num_threads = 2;
  options.device = testing::test_device();
  options.on_load = [&](int64_t, int64_t) {
    if (!std::exchange(has_changed, true)) change();
  };
  return Engine(options);
}

TEST(ChangedFiles, AModelThatShrinksEndsItsLoadAlone) {
  const testing::RandomModel model;
  const std::string path = model.path();
  const auto size = fs::file_size(path);
  testing::expect_invalid({"tiny.gguf: the file ends at byte ", "it has changed while it was read"},
                          [&] { (void)load(path, [&] { fs::resize_file(path, size / 2); }); });
  // As `cp` does, which cuts the file before it writes.
  const std::string again = model.path();
  testing::expect_invalid({"tiny.gguf: the file ends at byte "},
                          [&] { (void)load(again, [&] { fs::resize_file(again, 0); }); });
  EXPECT_EQ(load(model.path(), [] {}).model().num_layers, 2);
}

TEST(ChangedFiles, AModelThatIsWrittenToWhileItIsLoadedIsRefused) {
  const testing::RandomModel model;
  const std::string path = model.path();
  const auto change = [&](const std::function<void()>& how) {
    testing::expect_invalid({"tiny.gguf: has changed while the model was loaded; load it again"},
                            [&] { (void)load(path, how); });
    static_cast<void>(model.path());  // whole again
  };
  change([&] { (void)model.path(); });  // the same bytes, but who is to know?
  change([&] {
    fs::copy_file(path, path + ".new");
    fs::rename(path + ".new", path);
  });
  change([&] { fs::remove(path); });
}

TEST(ChangedFiles, AModelThatIsJustBeingWrittenIsWaitedFor) {
  const testing::RandomModel model;
  const std::string path = model.path();
  std::thread writer([&] {
    for (int i = 0; i < 4; ++i) {  // whole, but not yet at rest
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      fs::last_write_time(path, fs::file_time_type::clock::now());
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  const Engine engine = load(path, [] {});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(95));
  writer.join();
}

}  // namespace
}  // namespace heddle
