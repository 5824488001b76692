#include "model/adapters/adapter_digest.h"

namespace heddle::model {
namespace {

// Whether a part is there and how many there are comes before it, so that no two structures give
// the same bytes.

void add_values(Hasher& hasher, const StoredValues& values) {
  hasher.add(values.is_present());
  if (!values.is_present()) return;
  hasher.add(values.dtype).add(values.rows).add(values.columns).add(values.bytes());
}

void add_pair(Hasher& hasher, const LowRank& pair) {
  hasher.add(pair.scale);
  for (const StoredValues& half : {pair.stored_a(), pair.stored_b()}) add_values(hasher, half);
  for (const StoredValues* vector : pair.vectors()) add_values(hasher, *vector);
}

void add_part(Hasher& hasher, const VocabularyPart& part) {
  hasher.add(part.pair.has_value());
  if (part.pair) add_pair(hasher, *part.pair);
  add_values(hasher, part.weight);
  hasher.add(part.token_ids.size()).add(std::as_bytes(std::span(part.token_ids)));
  add_values(hasher, part.token_rows);
}

}  // namespace

Digest content_digest(const Adapter& adapter, std::span<const std::byte> secret) {
  Hasher hasher(secret);
  hasher.add(adapter.pairs().size());
  for (const AdapterPair& pair : adapter.pairs()) {
    hasher.add(pair.layer).add(pair.module->name);
    add_pair(hasher, pair);
  }
  for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    add_part(hasher, *part);
  }
  return hasher.digest();
}

}  // namespace heddle::model
