#include "engine/options/program_digest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <gnu/libc-version.h>
#include <link.h>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/core/error.h"

namespace heddle {
namespace {

/// The object, program or shared library, that holds an address.
struct LoadedObject {
  uintptr_t address;
  uintptr_t base = 0;
  std::span<const ElfW(Phdr)> segments{};

  [[nodiscard]] static LoadedObject of(uintptr_t address) {
    LoadedObject object{address};
    dl_iterate_phdr(&LoadedObject::look_at, &object);
    return object;
  }

 private:
  static int look_at(dl_phdr_info* info, size_t /*size*/, void* to) {
    auto& [address, base, segments] = *static_cast<LoadedObject*>(to);
    for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
      const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type != PT_LOAD || address < begin) continue;
      if (address - begin >= segment.p_memsz) continue;
      base = info->dlpi_addr;
      segments = {info->dlpi_phdr, info->dlpi_phnum};
      return 1;  // the search ends
    }
    return 0;
  }
};

/// Read by the system, since a sanitizer reports whoever reads what lies between two constants.
void add_memory(Hasher& hasher, std::ifstream& memory, uintptr_t begin, size_t size) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  std::vector<char> bytes(std::min(size, kPieceBytes));
  memory.seekg(static_cast<std::streamoff>(begin));
  for (size_t done = 0; done < size; done += bytes.size()) {
    bytes.resize(std::min(bytes.size(), size - done));
    memory.read(bytes.data(), std::ssize(bytes));
    HEDDLE_CHECK(memory.good(), "/proc/self/mem cannot be read, so no pages can be stored");
    hasher.add(std::as_bytes(std::span(bytes)));
  }
}

}  // namespace

/// Of the read-only segments, which relocation leaves as they are in the file.
Digest program_digest() {
  const auto object = LoadedObject::of(reinterpret_cast<uintptr_t>(&program_digest));
  std::ifstream memory("/proc/self/mem", std::ios::binary);
  Hasher hasher;
  for (const ElfW(Phdr) & segment : object.segments) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    hasher.add(uint64_t{segment.p_memsz});
    add_memory(hasher, memory, object.base + segment.p_vaddr, segment.p_memsz);
  }
  return hasher.digest();
}

std::string processor_name() {
  std::string name, flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {  // of the first processor
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = line.size() > colon + 2 ? line.substr(colon + 2) : "";
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("flags") || line.starts_with("Features")) flags = value;
  }
  const auto [low, high] = Hasher().add(std::string_view(flags)).digest();
  return name + ", features " + std::to_string(low ^ high) + ", glibc " + gnu_get_libc_version();
}

}  // namespace heddle
