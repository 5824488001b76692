#pragma once

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "device_memory.h"
#include "mirror.h"

namespace heddle::testing {

/// The mirror of the current CUDA device: every tensor has an allocation of its own, between two poisoned guards.
class DeviceMirror final : public Mirror {
 public:
  /// kFlush: tensors end where their allocations end, so that compute-sanitizer sees a read one byte past them.
  enum class Guards { kBoth, kFlush };

  explicit DeviceMirror(Guards guards = Guards::kBoth) : guards_(guards) {}

  void back() override {
    for (const Copy& copy : copies_) {
      const size_t end = copy.begin + copy.bytes;
      EXPECT_EQ(copy.memory.count_other(0, kPoison, copy.begin), 0u) << "written in front";
      EXPECT_EQ(copy.memory.count_other(end, kPoison, copy.memory.size() - end), 0u)
          << "written behind";
      if (copy.access == Access::kWrite && copy.bytes > 0)
        copy.memory.read(copy.begin, copy.host, copy.bytes);
    }
    copies_.clear();
    Mirror::back();
  }

  [[nodiscard]] Device device() const override { return {DeviceType::kCuda, current_device()}; }

 protected:
  std::byte* place(std::byte* host, size_t bytes, Access access) override {
    const size_t guard = guards_ == Guards::kBoth ? kGuard : 0;
    const size_t begin = guard + reinterpret_cast<uintptr_t>(host) % kLine;
    copies_.push_back(
        {host, bytes, begin, access, DeviceMemory(std::max<size_t>(1, begin + bytes + guard))});
    DeviceMemory& memory = copies_.back().memory;
    memory.fill(0, kPoison, memory.size());
    if (bytes > 0) memory.write(begin, host, bytes);
    return memory.data() + begin;
  }

 private:
  struct Copy {
    std::byte* host;
    size_t bytes, begin;
    Access access;
    DeviceMemory memory;
  };
  static constexpr size_t kGuard = 256, kLine = 16;
  static constexpr unsigned char kPoison = 0xFF;

  Guards guards_;
  std::vector<Copy> copies_;
};

}  // namespace heddle::testing
