#include "core/device_bytes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "exec_context.h"

namespace heddle {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

/// Whether the system was asked for huge pages where `memory` begins: "hg" among the flags of its
/// mapping in /proc/self/smaps.
bool has_asked_for_huge_pages(const std::byte* memory) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(memory) << '-';
  std::ifstream mappings("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(mappings, line);) {
    if (line.starts_with(begin.str())) is_here = true;
    if (is_here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(DeviceBytes, HugePagesBeginAtTheirMultipleAndAreZero) {
  for (const size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 4096, 3 * kHugePage}) {
    const DeviceBytes memory = allocate_zeroed({}, bytes, HostPages::kHuge);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % kHugePage, 0u) << bytes;
    const std::span<std::byte> all(memory.get(), bytes);
    EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{}; })) << bytes;
    std::ranges::fill(all, std::byte{1});
    if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
      EXPECT_TRUE(has_asked_for_huge_pages(memory.get())) << bytes;
    }
  }
}

TEST(DeviceBytes, OnlyWhatAsksForHugePagesAndFillsOneGetsThem) {
  const DeviceBytes small_pages = allocate_zeroed({}, 2 * kHugePage);
  EXPECT_FALSE(has_asked_for_huge_pages(small_pages.get()));
  const DeviceBytes too_little = allocate_zeroed({}, kHugePage - 1, HostPages::kHuge);
  EXPECT_FALSE(has_asked_for_huge_pages(too_little.get()));
}

TEST(DeviceBytes, HugePagesAreGivenBackWhole) {
  const int64_t before = testing::mapped_pages();
  ASSERT_GT(before, 0);
  for (size_t i = 0; i < 100; ++i) {
    (void)allocate_zeroed({}, kHugePage + i * 5000, HostPages::kHuge);
  }
  EXPECT_LT(testing::mapped_pages(), before + 50);  // one page that stays each time is 100
}

}  // namespace
}  // namespace heddle
