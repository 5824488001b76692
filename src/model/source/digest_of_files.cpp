#include "model/source/digest_of_files.h"

#include <algorithm>
#include <cstddef>

#include "core/math.h"
#include "core/throwing_parallel_for.h"
#include "files/open_file.h"

namespace heddle::model {
namespace {

/// What a thread hashes at once. The digest depends on it.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

}  // namespace

Digest digest_of_files(const ExecContext& ctx, const std::vector<std::string>& paths) {
  Hasher all;
  for (const std::string& path : paths) {
    const files::OpenFile file(path);
    const auto size = static_cast<int64_t>(file.size());
    std::vector<Digest> pieces(static_cast<size_t>(ceil_div(size, kPieceBytes)));
    throwing_parallel_for(ctx, std::ssize(pieces), 1, [&](int64_t first, int64_t end) {
      std::vector<std::byte> bytes;
      for (int64_t i = first; i < end; ++i) {
        const int64_t begin = i * kPieceBytes;
        bytes.resize(static_cast<size_t>(std::min(kPieceBytes, size - begin)));
        file.read(static_cast<uint64_t>(begin), bytes);
        pieces[static_cast<size_t>(i)] = Hasher().add(std::span<const std::byte>(bytes)).digest();
      }
    });
    all.add(size);
    for (const auto& [low, high] : pieces) all.add(low).add(high);
  }
  return all.digest();
}

}  // namespace heddle::model
