#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "core/math.h"
#include "device_memory.h"
#include "mirror.h"

namespace heddle::testing {

/// The mirror of the current CUDA device: every tensor lies between two poisoned guards.
class DeviceMirror final : public Mirror {
 public:
  /// kBoth: tensors share memory that is kept from call to call, since to allocate takes a thousand
  /// times as long as a small kernel.
  /// kFlush: each has an allocation that ends where it ends, so that compute-sanitizer sees a read
  /// one byte past it.
  enum class Guards { kBoth, kFlush };

  explicit DeviceMirror(Guards guards = Guards::kBoth) : guards_(guards) {}

  void back() override {
    for (const Copy& copy : copies_) {
      const size_t end = copy.begin + copy.bytes;
      expect_poison(*copy.memory, copy.begin - copy.guard, copy.guard, "before");
      expect_poison(*copy.memory, end, std::min(copy.guard, copy.memory->size() - end), "after");
      if (copy.access == Access::kWrite && copy.bytes > 0)
        copy.memory->read(copy.begin, copy.host, copy.bytes);
    }
    copies_.clear();
    if (used_ > 0) shared_->fill(0, kPoison, used_);
    used_ = 0;
    Mirror::back();
  }

  [[nodiscard]] Device device() const override { return {DeviceType::kCuda, current_device()}; }

 protected:
  std::byte* place(std::byte* host, size_t bytes, Access access) override {
    const Copy& copy = reserve(host, bytes, reinterpret_cast<uintptr_t>(host) % kLine, access);
    if (bytes > 0) copy.memory->write(copy.begin, host, bytes);
    return copy.memory->data() + copy.begin;
  }
  /// Workspaces may be large, and no test reads them: their bytes do not pass through the host.
  std::byte* blank(size_t bytes, unsigned char value) override {
    const Copy& copy = reserve(nullptr, bytes, 0, Access::kRead);
    copy.memory->fill(copy.begin, value, bytes);
    return copy.memory->data() + copy.begin;
  }

 private:
  struct Copy {
    std::byte* host;
    size_t bytes, begin, guard;
    Access access;
    std::shared_ptr<DeviceMemory> memory;
  };
  static constexpr size_t kGuard = 256, kLine = 16, kShared = size_t{128} << 20;
  static constexpr size_t kAlignment = 256;  // of an allocation, and as the plans of ops need it
  static constexpr unsigned char kPoison = 0xFF;

  /// Room for a tensor whose address is `offset` modulo kLine.
  const Copy& reserve(std::byte* host, size_t bytes, size_t offset, Access access) {
    const size_t guard = guards_ == Guards::kBoth ? kGuard : 0;
    const size_t begin = guard + offset;
    const size_t size = std::max<size_t>(1, begin + bytes + guard);
    if (guards_ == Guards::kBoth && size <= kShared - used_) {
      if (!shared_) shared_ = poisoned(kShared);
      copies_.push_back({host, bytes, used_ + begin, guard, access, shared_});
      used_ += round_up(size, kAlignment);
    } else {
      copies_.push_back({host, bytes, begin, begin, access, poisoned(size)});
    }
    return copies_.back();
  }
  static std::shared_ptr<DeviceMemory> poisoned(size_t bytes) {
    auto memory = std::make_shared<DeviceMemory>(bytes);
    memory->fill(0, kPoison, bytes);
    return memory;
  }
  /// Guards are short: they are looked at here, which takes one copy.
  static void expect_poison(const DeviceMemory& memory, size_t at, size_t bytes,
                            const char* where) {
    std::vector<unsigned char> guard(bytes);
    if (bytes > 0) memory.read(at, guard.data(), bytes);
    EXPECT_EQ(std::count(guard.begin(), guard.end(), kPoison), std::ptrdiff_t(bytes))
        << "written " << where;
  }

  Guards guards_;
  std::shared_ptr<DeviceMemory> shared_;
  size_t used_ = 0;  // of shared_; poison after it
  std::vector<Copy> copies_;
};

}  // namespace heddle::testing
