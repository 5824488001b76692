#include "model/adapters/contents/adapter_contents.h"

namespace heddle::model {
namespace {

/// Takes in the structure. Whether a part is there and how many there are comes before it, so that
/// no two structures give the same bytes.
class StructureHasher {
 public:
  explicit StructureHasher(std::span<const std::byte> secret) : hasher_(secret) {}

  void add(const Adapter& adapter) {
    hasher_.add(adapter.pairs().size());
    for (const AdapterPair& pair : adapter.pairs()) {
      hasher_.add(pair.layer).add(pair.module->name);
      add_pair(pair);
    }
    for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) add_part(*part);
  }
  /// Tensors of the structure so far.
  [[nodiscard]] size_t num_tensors() const { return num_tensors_; }
  [[nodiscard]] Hasher& hasher() { return hasher_; }

 private:
  void add_values(const StoredValues& values) {
    hasher_.add(values.is_present());
    if (!values.is_present()) return;
    hasher_.add(values.dtype).add(values.rows).add(values.columns);
    ++num_tensors_;
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

  Hasher hasher_;
  size_t num_tensors_ = 0;
};

}  // namespace

/// The digests of all values but those of a score head follow the structure.
Digest AdapterContents::digest() const {
  StructureHasher structure(secret_);
  structure.add(adapter_);
  for (const Tensor& tensor : std::span(tensors_).first(structure.num_tensors())) {
    structure.hasher().add(tensor.with_secret.low).add(tensor.with_secret.high);
  }
  return structure.hasher().digest();
}

}  // namespace heddle::model
