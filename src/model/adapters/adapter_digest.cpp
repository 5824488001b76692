#include "model/adapters/adapter_digest.h"

#include <vector>

#include "model/adapters/load_threads.h"

namespace heddle::model {
namespace {

/// Takes in the structure, and leaves the bytes of the values for several threads. Whether a part
/// is there and how many there are comes before it, so that no two structures give the same bytes.
class ContentHasher {
 public:
  explicit ContentHasher(std::span<const std::byte> secret) : secret_(secret), hasher_(secret) {}

  void add(const Adapter& adapter) {
    hasher_.add(adapter.pairs().size());
    for (const AdapterPair& pair : adapter.pairs()) {
      hasher_.add(pair.layer).add(pair.module->name);
      add_pair(pair);
    }
    for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) add_part(*part);
  }

  /// The digests of all values follow the structure.
  [[nodiscard]] Digest digest() {
    std::vector<Digest> digests(values_.size());
    parallel_load(num_bytes_, values_.size(),
                  [&](size_t i) { digests[i] = Hasher(secret_).add(values_[i]).digest(); });
    for (const Digest& each : digests) hasher_.add(each.low).add(each.high);
    return hasher_.digest();
  }

 private:
  void add_values(const StoredValues& values) {
    hasher_.add(values.is_present());
    if (!values.is_present()) return;
    hasher_.add(values.dtype).add(values.rows).add(values.columns);
    values_.push_back(values.bytes());
    num_bytes_ += values.bytes().size();
  }
  void add_pair(const LowRank& pair) {
    hasher_.add(pair.scale);
    for (const StoredValues& half : {pair.stored_a(), pair.stored_b()}) add_values(half);
    for (const StoredValues* vector : pair.vectors()) add_values(*vector);
  }
  void add_part(const VocabularyPart& part) {
    hasher_.add(part.pair.has_value());
    if (part.pair) add_pair(*part.pair);
    add_values(part.weight);
    hasher_.add(part.token_ids.size()).add(std::as_bytes(std::span(part.token_ids)));
    add_values(part.token_rows);
  }

  std::span<const std::byte> secret_;
  Hasher hasher_;
  std::vector<std::span<const std::byte>> values_;
  size_t num_bytes_ = 0;  // of the values
};

}  // namespace

Digest content_digest(const Adapter& adapter, std::span<const std::byte> secret) {
  ContentHasher hasher(secret);
  hasher.add(adapter);
  return hasher.digest();
}

}  // namespace heddle::model
