#include <algorithm>
#include <bit>
#include <cstdio>
#include <span>
#include <sstream>
#include <vector>

#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/kinds/peft_names.h"

namespace heddle::model {
namespace {

using Kind = AdapterPlace::Kind;
using Part = AdapterPart;

std::string hex_of(Digest digest) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return text;
}

/// The lines of a fingerprint: one for each tensor, scale and list of tokens.
class Lines {
 public:
  /// The digests of the tensors, in the order in which they are added.
  explicit Lines(std::span<const Digest> digests) : digests_(digests) {}

  void add_pair(const AdapterPlace& place, const LowRank& pair) {
    add_values(place, Part::kA, pair.stored_a());
    add_values(place, Part::kB, pair.stored_b());
    add_values(place, Part::kMagnitude, pair.magnitude);
    add_values(place, Part::kBias, pair.bias);
    add_values(place, Part::kLayerBias, pair.layer_bias);
    add_values(place, Part::kFactor, pair.factor);
    char bits[9];
    std::snprintf(bits, sizeof bits, "%08x", std::bit_cast<uint32_t>(pair.scale));
    lines_.push_back(place.name() + " scale " + bits + '\n');
  }
  void add_tokens(const std::string& name, const std::vector<int32_t>& ids) {
    if (ids.empty()) return;
    std::string line = name;
    for (const int32_t id : ids) line += ' ' + std::to_string(id);
    lines_.push_back(line + '\n');
  }
  void add_score(const Adapter& adapter) {
    add_values({Kind::kScore}, Part::kWeight, adapter.score());
    add_values({Kind::kScore}, Part::kWeightBias, adapter.score_bias());
  }
  void add_part(const AdapterPlace& place, const VocabularyPart& part) {
    if (part.pair) add_pair(place, *part.pair);
    add_values(place, Part::kWeight, part.weight);
    add_values(place, Part::kTokenRows, part.token_rows);
    add_tokens(place.name() + " tokens", part.token_ids);
  }
  /// Of all lines in the order of their bytes.
  [[nodiscard]] Digest digest() {
    std::ranges::sort(lines_);
    Hasher hasher;
    for (const std::string& line : lines_) hasher.add(std::as_bytes(std::span(line)));
    return hasher.digest();
  }

 private:
  void add_values(const AdapterPlace& place, Part part, const StoredValues& values) {
    if (!values.is_present()) return;
    std::ostringstream line;
    line << peft_name(place, part) << ' ' << values.dtype << ' ' << values.rows << 'x'
         << values.columns << ' ';
    lines_.push_back(line.str() + hex_of(digests_.front()) + '\n');
    digests_ = digests_.subspan(1);
  }

  std::span<const Digest> digests_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string AdapterContents::fingerprint() const {
  std::vector<Digest> digests;
  for (const Tensor& tensor : tensors_) digests.push_back(tensor.open);
  Lines lines(digests);
  for (const AdapterPair& pair : adapter_.pairs()) {
    lines.add_pair({Kind::kLayer, pair.layer, pair.module}, pair);
  }
  lines.add_part({Kind::kEmbedding}, adapter_.embedding());
  lines.add_part({Kind::kHead}, adapter_.head());
  lines.add_score(adapter_);
  lines.add_tokens("alora_invocation_tokens", adapter_.invocation_tokens());
  return hex_of(lines.digest());
}

}  // namespace heddle::model
