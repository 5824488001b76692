#pragma once

#include <cstdint>
#include <span>

#include "model/adapters/adapter.h"

namespace heddle::model {

/// How tensors of one shape become one; what PEFT's add_weighted_adapter calls combination_type.
struct AdapterMergeRule {
  enum class Method : uint8_t { kTies, kDareLinear, kDareTies, kMagnitudePrune };
  enum class MajoritySign : uint8_t { kTotal, kFrequency };
  Method method = Method::kTies;
  double density = 1;  // above 0, up to 1
  MajoritySign majority_sign = MajoritySign::kTotal;
  int64_t seed = 0;
};

/// A tensor of an adapter and what its values count in the sum.
struct WeightedTensor {
  StoredValues values;
  double weight = 1;
  uint32_t place = 0;  // of the adapter in its list
};

/// The tensors, which are of one shape, as one; all values are finite, out [num_elements].
///
/// First each tensor v_j of n elements is thinned out. kTies and kMagnitudePrune keep the
/// floor(density n) values of the largest magnitude, of equal ones the first; kDareLinear and
/// kDareTies keep those that is_drawn names. What is not kept is 0. Then
///   kMagnitudePrune, kDareLinear:  out = d sum_j w_j v_j
///   kTies, kDareTies:              out = d sum_j m_j w_j v_j / max(sum_j m_j, 1)
/// with d = 1 / density of kDareLinear and kDareTies, else 1, and m_j = 1 where v_j has the
/// majority's sign and is not 0, else 0. The majority's sign is that of sum_j v_j (kTotal) or of
/// sum_j sign(v_j) (kFrequency); 0 counts as above 0. All is in double, in the order of the
/// tensors, and rounded once.
///
/// `tensor`: its number in the adapter, for the draws.
void merge_tensors(std::span<float> out, std::span<const WeightedTensor> tensors,
                   const AdapterMergeRule& rule, uint32_t tensor);

/// Whether DARE keeps the element: of the words of philox4x32-10 with key `seed` and counter
/// (element / 4, tensor, place), word element % 4 is less than density 2^32. The seed and
/// element / 4 have their low word first.
[[nodiscard]] bool is_drawn(const AdapterMergeRule& rule, uint32_t tensor, uint32_t place,
                            int64_t element);

}  // namespace heddle::model
