#include "ops/verify/residual.h"

#include <algorithm>

#include "core/math.h"

namespace heddle {

double weight_of(const Residual& residual, int64_t token) {
  double w = probability(residual.p[token]);
  for (int k = 0; k < residual.num_rejected; ++k) {
    if (residual.one_hot) {
      if (residual.tokens[k] == token) return 0.0;
    } else {
      const double rest = w - residual.masses[k] * probability(residual.q[k][token]);
      w = rest > 0.0 ? rest : 0.0;
    }
  }
  return w;
}

namespace {

double add_up(const ChunkSums& sums) {
  double total = 0.0;
  for (int64_t c = 0; c < sums.num_chunks; ++c) total += sums.sums[c];
  return total;
}

}  // namespace

void sum_weights(const Residual& residual, ChunkSums& sums) {
  sums.chunk_size = chunk_size_of(residual.vocab_size);
  sums.num_chunks = ceil_div(residual.vocab_size, sums.chunk_size);
  cpu::verify::sum_chunks(residual, sums, 0, sums.num_chunks);
  sums.total = add_up(sums);
}

void sum_weights_again(const Residual& residual, ChunkSums& sums) {
  const int64_t chunk = residual.tokens[residual.num_rejected - 1] / sums.chunk_size;
  cpu::verify::sum_chunks(residual, sums, chunk, chunk + 1);
  sums.total = add_up(sums);
}

int64_t draw_from(const Residual& residual, const ChunkSums& sums, double u) {
  const double threshold = u * sums.total;
  int64_t chunk = 0;
  double before = 0.0, running = 0.0;
  for (int64_t c = 0; c < sums.num_chunks && !(running > threshold); ++c) {
    if (!(sums.sums[c] > 0.0)) continue;
    chunk = c;
    before = running;
    running += sums.sums[c];
  }
  // A chunk's sum is not in the order of this one, so a few units in the last place may be missing
  // at its end.
  const int64_t begin = chunk * sums.chunk_size;
  const int64_t end = std::min(begin + sums.chunk_size, residual.vocab_size);
  int64_t last = 0;
  running = before;
  for (int64_t i = begin; i < end && !(running > threshold); ++i) {
    const double w = weight_of(residual, i);
    if (!(w > 0.0)) continue;
    last = i;
    running += w;
  }
  return last;
}

}  // namespace heddle
