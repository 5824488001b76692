#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/mamba.h"

#include "expect_error.h"
#include "mirror.h"
#include "ops/mamba/test/mamba_state_selective_copy_ref.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

// The bodies of the tests of mamba_state_selective_copy, for any device.

namespace heddle::testing {

using Ints = std::vector<int64_t>;

/// One kind of state of random shape, dtype and strides; every byte of both tensors is random,
/// every gap poisoned.
class StateTensors {
 public:
  /// After tokens and slots lie gaps of up to 3 `step` elements.
  StateTensors(DType dtype, int64_t num_layers, int64_t num_slots, int64_t num_tokens, Ints state,
               int64_t step = 1)
      : dtype_(dtype), num_layers_(num_layers), num_slots_(num_slots), num_tokens_(num_tokens) {
    elements_ = std::accumulate(state.begin(), state.end(), int64_t{1}, std::multiplies<>());
    const int64_t token_step = elements_ + step * random_int(0, 3);
    const int64_t slot_step = token_step * num_tokens + step * random_int(0, 3);
    current_shape_ = {num_layers, num_slots};
    intermediate_shape_ = {num_layers, num_slots, num_tokens};
    const int64_t current_slot = elements_ + step * random_int(0, 3);
    // Slots outside layers, or layers outside slots: any order of the leading axes.
    current_strides_ = random_int(0, 1) == 1 ? Ints{current_slot * num_slots, current_slot}
                                             : Ints{current_slot, current_slot * num_layers};
    intermediate_strides_ = random_int(0, 1) == 1
                                ? Ints{slot_step * num_slots, slot_step, token_step}
                                : Ints{slot_step, slot_step * num_layers, token_step};
    Ints dense;
    int64_t stride = elements_;
    for (const int64_t extent : state) {
      stride = extent > 0 ? stride / extent : 0;
      dense.push_back(stride);
    }
    for (auto* shape : {&current_shape_, &intermediate_shape_}) {
      shape->insert(shape->end(), state.begin(), state.end());
    }
    for (auto* strides : {&current_strides_, &intermediate_strides_}) {
      strides->insert(strides->end(), dense.begin(), dense.end());
    }
    current_.emplace(size_t(current_slot * num_slots * num_layers) * size_of(dtype));
    intermediate_.resize(size_t(slot_step * num_slots * num_layers) * size_of(dtype));
    for (uint8_t& byte : intermediate_) byte = uint8_t(random_int(0, 254));
    for (int64_t l = 0; l < num_layers; ++l) {
      for (int64_t slot = 0; slot < num_slots; ++slot) {
        for (size_t b = 0; b < state_bytes(); ++b) {
          (*current_)[current_at(l, slot) + b] = uint8_t(random_int(0, 254));
        }
      }
    }
    before_.assign(current_->data(), current_->data() + current_->size());
  }

  MambaState view(Mirror& on) { return {on(host_current()), on(host_intermediate())}; }
  [[nodiscard]] int64_t max_accepted() const { return num_tokens_ - 1; }
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }

  /// After the copies to the first `num_layers` layers.
  void expect_copied(const std::vector<ref::SlotCopy>& copies, int64_t num_layers) const {
    std::vector<uint8_t> want = before_;
    for (int64_t l = 0; l < num_layers; ++l) {
      for (const ref::SlotCopy& copy : copies) {
        for (size_t b = 0; b < state_bytes(); ++b) {
          want[current_at(l, copy.slot) + b] =
              intermediate_[intermediate_at(l, copy.slot, copy.token) + b];
        }
      }
    }
    EXPECT_EQ(std::vector<uint8_t>(current_->data(), current_->data() + current_->size()), want);
    EXPECT_TRUE(current_->guards_intact());
  }

 private:
  TensorView host_current() {
    return {reinterpret_cast<std::byte*>(current_->data()),
            dtype_,
            {},
            current_shape_,
            current_strides_};
  }
  [[nodiscard]] ConstTensorView host_intermediate() const {
    return {reinterpret_cast<const std::byte*>(intermediate_.data()),
            dtype_,
            {},
            intermediate_shape_,
            intermediate_strides_};
  }
  [[nodiscard]] size_t state_bytes() const { return size_t(elements_) * size_of(dtype_); }
  [[nodiscard]] size_t current_at(int64_t l, int64_t slot) const {
    return size_t(l * current_strides_[0] + slot * current_strides_[1]) * size_of(dtype_);
  }
  [[nodiscard]] size_t intermediate_at(int64_t l, int64_t slot, int64_t token) const {
    return size_t(l * intermediate_strides_[0] + slot * intermediate_strides_[1] +
                  token * intermediate_strides_[2]) *
           size_of(dtype_);
  }

  DType dtype_;
  int64_t num_layers_, num_slots_, num_tokens_, elements_ = 0;
  Ints current_shape_, current_strides_, intermediate_shape_, intermediate_strides_;
  std::optional<PoisonedBuffer<uint8_t>> current_;
  std::vector<uint8_t> intermediate_, before_;
};

/// i32 or i64, as it falls; the view keeps to the memory of the object.
class RandomWidth {
 public:
  explicit RandomWidth(const Ints& values)
      : wide_(values), narrow_(values.begin(), values.end()), use_wide_(random_int(0, 1) == 1) {}
  [[nodiscard]] ConstTensorView view(Mirror& on) const { return on(host()); }

 private:
  [[nodiscard]] ConstTensorView host() const {
    const int64_t n = std::ssize(wide_);
    if (use_wide_) return host_view(wide_.data(), {n});
    return host_view(narrow_.data(), {n});
  }

  Ints wide_;
  std::vector<int32_t> narrow_;
  bool use_wide_;
};

/// Distinct slots, some of them -1 and some past the end; counts that may lie outside [0, S].
struct Requests {
  Ints prefill, slots, accepted;

  Requests(int64_t n, int64_t num_slots, int64_t max_accepted) {
    Ints all(static_cast<size_t>(num_slots));
    std::iota(all.begin(), all.end(), int64_t{0});
    std::shuffle(all.begin(), all.end(), rng());
    for (int64_t i = 0; i < n; ++i) {
      const int64_t outside = pick<int64_t>({-1, -1000, num_slots, num_slots + 1000});
      slots.push_back(i < num_slots && random_int(0, 4) > 0 ? all[size_t(i)] : outside);
      prefill.push_back(pick<int64_t>({0, 0, 0, 1, 2}));
      accepted.push_back(random_int(0, 9) == 0 ? pick<int64_t>({-5, max_accepted + 5})
                                               : random_int(0, max_accepted));
    }
  }
};

/// A call with `copied_layers` layers, checked against the reference.
inline void expect_copies(const ExecContext& ctx, Mirror& on, std::vector<StateTensors>& tensors,
                          const Requests& requests, int64_t copied_layers,
                          std::optional<int64_t> num_active = {}) {
  const RandomWidth prefill(requests.prefill), slots(requests.slots), accepted(requests.accepted);
  const int64_t n = std::ssize(requests.slots), num_copied = num_active.value_or(n);
  const RandomWidth on_device({num_copied});
  const Count active = !num_active             ? Count()
                       : random_int(0, 1) == 1 ? Count(num_copied)
                                               : Count(on_device.view(on));
  std::vector<MambaState> states;
  for (StateTensors& t : tensors) states.push_back(t.view(on));
  mamba_state_selective_copy(ctx, states, prefill.view(on), slots.view(on), accepted.view(on),
                             copied_layers, active);
  on.back();
  for (const StateTensors& t : tensors) {
    t.expect_copied(
        ref::mamba_state_selective_copy(requests.prefill, requests.slots, requests.accepted,
                                        num_copied, t.num_slots(), t.max_accepted()),
        copied_layers);
  }
}

inline void expect_random_copies(const ExecContext& ctx, Mirror& on) {
  const int64_t num_requests = random_int(0, 12), num_layers = random_int(1, 4);
  const int64_t num_slots = random_int(1, 15), max_accepted = random_int(0, 4);
  std::vector<StateTensors> tensors;
  for (int64_t s = random_int(0, 5); s-- > 0;) {
    const DType dtype = pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                              DType::kInt64, DType::kUInt8, DType::kBool, DType::kFloat8E4M3});
    const Ints shape = pick<Ints>({{}, {7}, {3, 5}, {2, 1, 9}, {4, 0}, {16}, {40, 16}});
    tensors.emplace_back(dtype, num_layers, num_slots, max_accepted + 1, shape, pick({1, 16}));
  }
  std::optional<int64_t> active;
  if (random_int(0, 1) == 1) active.emplace(random_int(0, num_requests));
  expect_copies(ctx, on, tensors, Requests(num_requests, num_slots, max_accepted),
                random_int(0, num_layers), active);
}

inline void expect_large_states_are_cut_into_pieces(const ExecContext& ctx, Mirror& on) {
  for (const int64_t extent : {16383, 65535, 65536, 65537, 300000}) {
    std::vector<StateTensors> tensors;
    tensors.emplace_back(DType::kUInt8, 2, 3, 2, Ints{extent}, pick({1, 16}));
    tensors.emplace_back(DType::kUInt8, 2, 3, 2, Ints{1000});
    Requests requests(2, 3, 1);
    requests.prefill = {0, 0};
    requests.slots = {2, 0};
    requests.accepted = {1, 0};
    expect_copies(ctx, on, tensors, requests, 2);
  }
}

inline void expect_any_number_of_requests(const ExecContext& ctx, Mirror& on, int64_t n) {
  std::vector<StateTensors> tensors;
  tensors.emplace_back(DType::kFloat16, 1, n, 2, Ints{3});
  expect_copies(ctx, on, tensors, Requests(n, n, 1), 1);
}

/// Two layers, two slots, S = 1, a state of two floats: element [l, m, t, e] of intermediate is
/// 1000 l + 100 m + 10 t + e.
struct Example {
  std::vector<float> current = std::vector<float>(8, -1.0f), intermediate;
  Ints prefill{0, 0}, slots{1, 0}, accepted{1, 0};

  Example() {
    for (int l = 0; l < 2; ++l)
      for (int m = 0; m < 2; ++m)
        for (int t = 0; t < 2; ++t)
          for (int e = 0; e < 2; ++e)
            intermediate.push_back(float(1000 * l + 100 * m + 10 * t + e));
  }
  MambaState state() {
    return {host_view(current.data(), {2, 2, 2}),
            ConstTensorView(host_view(intermediate.data(), {2, 2, 2, 2}))};
  }
  void run(const ExecContext& ctx, Mirror& on, const MambaState& s, int64_t num_layers = 2) {
    const MambaState there{on(s.current), on(s.intermediate)};
    const auto indices = [&](const Ints& values) {
      return on(ConstTensorView(host_view(values.data(), {std::ssize(values)})));
    };
    try {
      mamba_state_selective_copy(ctx, {&there, 1}, indices(prefill), indices(slots),
                                 indices(accepted), num_layers);
    } catch (...) {
      on.back();
      throw;
    }
    on.back();
  }
};

inline void expect_the_state_behind_the_last_accepted_token(const ExecContext& ctx, Mirror& on) {
  Example example;
  example.run(ctx, on, example.state());
  EXPECT_EQ(example.current, (std::vector<float>{0, 1, 110, 111, 1000, 1001, 1110, 1111}));
}

inline void expect_prefill_missing_slots_and_further_layers_left(const ExecContext& ctx,
                                                                 Mirror& on) {
  Example example;
  example.prefill = {1, 0};
  example.run(ctx, on, example.state(), 1);
  EXPECT_EQ(example.current, (std::vector<float>{0, 1, -1, -1, -1, -1, -1, -1}));
  example = Example();
  example.slots = {-1, 2};
  example.run(ctx, on, example.state());
  EXPECT_EQ(example.current, std::vector<float>(8, -1.0f));
}

inline void expect_nothing_to_copy_is_legal(const ExecContext& ctx, Mirror& on) {
  Example example;
  MambaState state = example.state();
  state.current = host_view(example.current.data(), {2, 2, 0});
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2, 0});
  example.run(ctx, on, state);
  state.current = host_view(example.current.data(), {2, 2, 2});
  state.intermediate =
      host_view(example.intermediate.data(), {2, 2, 0, 2});  // no states left behind
  example.run(ctx, on, state);
  example.run(ctx, on, example.state(), 0);
  const RandomWidth zero({0});
  mamba_state_selective_copy(ctx, {}, zero.view(on), zero.view(on), zero.view(on), 2);
  on.back();
  example.prefill = example.slots = example.accepted = {};
  example.run(ctx, on, example.state());
  EXPECT_EQ(example.current, std::vector<float>(8, -1.0f));
}

inline void expect_validation_names_row_and_value(const ExecContext& ctx, Mirror& on) {
  const ScopedValidation validation;
  Example example;
  example.slots = {1, -1};  // no slot is no mistake
  example.accepted = {1, 7};
  example.run(ctx, on, example.state());
  example.slots = {1, 2};
  expect_invalid({"state_idx[1] is 2, expected below num_slots = 2"},
                 [&] { example.run(ctx, on, example.state()); });
  example.slots = {-1, 2};  // after a request that is skipped
  expect_invalid({"state_idx[1] is 2, expected below num_slots = 2"},
                 [&] { example.run(ctx, on, example.state()); });
  example.slots = {1, 1};
  example.accepted = {1, 1};
  expect_invalid({"state_idx[1] is 1, as state_idx[0]"},
                 [&] { example.run(ctx, on, example.state()); });
  example.slots = {1, 0};
  example.accepted = {1, 2};
  expect_invalid({"accepted_counts[1] is 2, expected 0 to num_speculative_tokens = 1"},
                 [&] { example.run(ctx, on, example.state()); });
  example.prefill = {0, 1};
  example.run(ctx, on, example.state());
  example.accepted = {-1, 0};
  expect_invalid({"accepted_counts[0] is -1, expected 0 to num_speculative_tokens = 1"},
                 [&] { example.run(ctx, on, example.state()); });

  // Each state of the list counts, and the number of requests wherever it lies.
  example = Example();
  std::vector<float> more(18), more_from(18);
  const MambaState narrow = example.state();
  const MambaState no_drafts{// has a third slot, but S = 0
                             host_view(more.data(), {2, 3, 3}),
                             ConstTensorView(host_view(more_from.data(), {2, 3, 1, 3}))};
  const RandomWidth none({0, 0}), slots({1, 0});
  const auto run = [&](const Ints& accepted_counts, std::optional<int32_t> num_active) {
    const MambaState states[] = {{on(narrow.current), on(narrow.intermediate)},
                                 {on(no_drafts.current), on(no_drafts.intermediate)}};
    const RandomWidth accepted(accepted_counts);
    const int32_t value = num_active.value_or(0);
    const Count active = num_active ? Count(on(ConstTensorView(host_view(&value, {1})))) : Count();
    try {
      mamba_state_selective_copy(ctx, states, none.view(on), slots.view(on), accepted.view(on), 2,
                                 active);
    } catch (...) {
      on.back();
      throw;
    }
    on.back();
  };
  run({0, 1}, 1);  // the second request is padding
  expect_invalid({"accepted_counts[1] is 1, expected 0 to num_speculative_tokens = 0"}, [&] {
    run({0, 1}, {});
  });
  expect_invalid({"num_active is 3, expected 0 to num_requests = 2"}, [&] { run({0, 0}, 3); });
}

}  // namespace heddle::testing
