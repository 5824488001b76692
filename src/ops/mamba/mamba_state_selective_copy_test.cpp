#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/mamba.h"

#include "expect_error.h"
#include "ops/mamba/mamba_state_selective_copy_ref.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::PoisonedBuffer;
using testing::random_int;
using Ints = std::vector<int64_t>;

/// One kind of state of random shape, dtype and strides; every byte of both tensors is random, every gap poisoned.
class StateTensors {
 public:
  StateTensors(DType dtype, int64_t num_layers, int64_t num_slots, int64_t num_tokens, Ints state)
      : dtype_(dtype), num_layers_(num_layers), num_slots_(num_slots), num_tokens_(num_tokens) {
    elements_ = std::accumulate(state.begin(), state.end(), int64_t{1}, std::multiplies<>());
    const int64_t token_step = elements_ + random_int(0, 3);
    const int64_t slot_step = token_step * num_tokens + random_int(0, 3);
    current_shape_ = {num_layers, num_slots};
    intermediate_shape_ = {num_layers, num_slots, num_tokens};
    const int64_t current_slot = elements_ + random_int(0, 3);
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

  MambaState view() {
    return {{reinterpret_cast<std::byte*>(current_->data()),
             dtype_,
             {},
             current_shape_,
             current_strides_},
            {reinterpret_cast<const std::byte*>(intermediate_.data()),
             dtype_,
             {},
             intermediate_shape_,
             intermediate_strides_}};
  }
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
  [[nodiscard]] ConstTensorView view() const {
    const int64_t n = std::ssize(wide_);
    if (use_wide_) return host_view(wide_.data(), {n});
    return host_view(narrow_.data(), {n});
  }

 private:
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
    std::shuffle(all.begin(), all.end(), testing::rng());
    for (int64_t i = 0; i < n; ++i) {
      const int64_t outside = testing::pick<int64_t>({-1, -1000, num_slots, num_slots + 1000});
      slots.push_back(i < num_slots && random_int(0, 4) > 0 ? all[size_t(i)] : outside);
      prefill.push_back(testing::pick<int64_t>({0, 0, 0, 1, 2}));
      accepted.push_back(random_int(0, 9) == 0 ? testing::pick<int64_t>({-5, max_accepted + 5})
                                               : random_int(0, max_accepted));
    }
  }
};

TEST(MambaStateSelectiveCopy, EqualsTheReference) {
  for (int round = 0; round < 200; ++round) {
    const int64_t num_requests = random_int(0, 12), num_layers = random_int(1, 4);
    const int64_t num_slots = random_int(1, 15), max_accepted = random_int(0, 4);
    std::vector<StateTensors> tensors;
    for (int64_t s = random_int(0, 3); s-- > 0;) {
      const DType dtype =
          testing::pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                         DType::kInt64, DType::kUInt8, DType::kBool});
      const Ints shape = testing::pick<Ints>({{}, {7}, {3, 5}, {2, 1, 9}, {4, 0}});
      tensors.emplace_back(dtype, num_layers, num_slots, max_accepted + 1, shape);
    }
    const Requests requests(num_requests, num_slots, max_accepted);
    const int64_t copied_layers = random_int(0, num_layers);
    const int64_t num_active = random_int(0, num_requests);
    std::vector<MambaState> states;
    for (StateTensors& t : tensors) states.push_back(t.view());
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    ExecContext ctx;
    ctx.threads = &pool;
    const std::vector<int32_t> on_device{static_cast<int32_t>(num_active)};
    const Count active = num_active == num_requests       ? Count()
                         : testing::random_int(0, 1) == 1 ? Count(num_active)
                                                          : Count(host_view(on_device.data(), {1}));
    mamba_state_selective_copy(ctx, states, RandomWidth(requests.prefill).view(),
                               RandomWidth(requests.slots).view(),
                               RandomWidth(requests.accepted).view(), copied_layers, active);
    for (const StateTensors& t : tensors) {
      t.expect_copied(
          ref::mamba_state_selective_copy(requests.prefill, requests.slots, requests.accepted,
                                          num_active, num_slots, max_accepted),
          copied_layers);
    }
  }
}

TEST(MambaStateSelectiveCopy, LargeStatesAreCutIntoPieces) {
  for (const int64_t extent : {65535, 65536, 65537, 300000}) {
    StateTensors tensors(DType::kUInt8, 2, 3, 2, {extent});
    const MambaState state = tensors.view();
    const Ints prefill{0, 0}, slots{2, 0}, accepted{1, 0};
    ThreadPool pool(3);
    ExecContext ctx;
    ctx.threads = &pool;
    mamba_state_selective_copy(ctx, {&state, 1}, RandomWidth(prefill).view(),
                               RandomWidth(slots).view(), RandomWidth(accepted).view(), 2);
    tensors.expect_copied({{2, 1}, {0, 0}}, 2);
  }
}

TEST(MambaStateSelectiveCopy, TakesAnyNumberOfRequests) {
  const int64_t n = 70000;
  StateTensors tensors(DType::kFloat16, 1, n, 2, {3});
  const MambaState state = tensors.view();
  const Requests requests(n, n, 1);
  ThreadPool pool(3);
  ExecContext ctx;
  ctx.threads = &pool;
  mamba_state_selective_copy(ctx, {&state, 1}, RandomWidth(requests.prefill).view(),
                             RandomWidth(requests.slots).view(),
                             RandomWidth(requests.accepted).view(), 1);
  tensors.expect_copied(
      ref::mamba_state_selective_copy(requests.prefill, requests.slots, requests.accepted, n, n, 1),
      1);
}

/// Two layers, two slots, S = 1, a state of two floats: element [l, m, t, e] of intermediate is 1000 l + 100 m + 10 t + e.
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
  void run(const MambaState& s, int64_t num_layers = 2) {
    mamba_state_selective_copy({}, {&s, 1}, host_view(prefill.data(), {std::ssize(prefill)}),
                               host_view(slots.data(), {std::ssize(slots)}),
                               host_view(accepted.data(), {std::ssize(accepted)}), num_layers);
  }
};

TEST(MambaStateSelectiveCopy, TakesTheStateBehindTheLastAcceptedToken) {
  Example example;
  example.run(example.state());
  EXPECT_EQ(example.current, (std::vector<float>{0, 1, 110, 111, 1000, 1001, 1110, 1111}));
}

TEST(MambaStateSelectiveCopy, LeavesPrefillRequestsMissingSlotsAndFurtherLayers) {
  Example example;
  example.prefill = {1, 0};
  example.run(example.state(), 1);
  EXPECT_EQ(example.current, (std::vector<float>{0, 1, -1, -1, -1, -1, -1, -1}));
  example = Example();
  example.slots = {-1, 2};
  example.run(example.state());
  EXPECT_EQ(example.current, std::vector<float>(8, -1.0f));
}

TEST(MambaStateSelectiveCopy, NothingToCopyIsLegal) {
  Example example;
  MambaState state = example.state();
  state.current = host_view(example.current.data(), {2, 2, 0});
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2, 0});
  example.run(state);
  state.current = host_view(example.current.data(), {2, 2, 2});
  state.intermediate =
      host_view(example.intermediate.data(), {2, 2, 0, 2});  // no states left behind
  example.run(state);
  example.run(example.state(), 0);
  mamba_state_selective_copy({}, {}, RandomWidth({0}).view(), RandomWidth({0}).view(),
                             RandomWidth({0}).view(), 2);
  example.prefill = example.slots = example.accepted = {};
  example.run(example.state());
  EXPECT_EQ(example.current, std::vector<float>(8, -1.0f));
}

TEST(MambaStateSelectiveCopy, ErrorsNameTensorAxisAndValues) {
  Example example;
  const MambaState good = example.state();
  MambaState state = good;
  std::vector<half> halves(16);
  state.intermediate = host_view(halves.data(), {2, 2, 2, 2});
  expect_invalid({"intermediate_states[0] is f16, expected f32 as current_states[0]"},
                 [&] { example.run(state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2});
  expect_invalid({"intermediate_states[0] has rank 3, expected 4"}, [&] { example.run(state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 1, 2, 2});
  expect_invalid({"intermediate_states[0].size(1) is 1, expected current_states[0].size(1) = 2"},
                 [&] { example.run(state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2, 1});
  expect_invalid({"intermediate_states[0].size(3) is 1, expected current_states[0].size(2) = 2"},
                 [&] { example.run(state); });
  state = good;
  const Ints shape{2, 2, 2, 2}, strides{8, 4, 1, 2};
  state.intermediate = {good.intermediate.raw(), DType::kFloat32, {}, shape, strides};
  expect_invalid({"intermediate_states[0].stride(3) is 2, expected 1"},
                 [&] { example.run(state); });
  expect_invalid({"num_layers is 3, expected at most current_states[0].size(0) = 2"},
                 [&] { example.run(good, 3); });
  expect_invalid({"num_layers is -1"}, [&] { example.run(good, -1); });
  example.slots = {0};
  expect_invalid({"state_idx.size(0) is 1, expected num_requests = 2"}, [&] { example.run(good); });
  const std::vector<MambaState> nine(9, good);
  expect_invalid({"states has 9 entries, at most 8"}, [&] {
    mamba_state_selective_copy({}, nine, RandomWidth({}).view(), RandomWidth({}).view(),
                               RandomWidth({}).view(), 2);
  });
}

TEST(MambaStateSelectiveCopy, ValidationNamesRowAndValue) {
  const testing::ScopedValidation validation;
  Example example;
  example.slots = {1, -1};  // no slot is no mistake
  example.accepted = {1, 7};
  example.run(example.state());
  example.slots = {1, 2};
  expect_invalid({"state_idx[1] is 2, expected below num_slots = 2"},
                 [&] { example.run(example.state()); });
  example.slots = {1, 1};
  example.accepted = {1, 1};
  expect_invalid({"state_idx[1] is 1, as state_idx[0]"}, [&] { example.run(example.state()); });
  example.slots = {1, 0};
  example.accepted = {1, 2};
  expect_invalid({"accepted_counts[1] is 2, expected 0 to num_speculative_tokens = 1"},
                 [&] { example.run(example.state()); });
  example.prefill = {0, 1};
  example.run(example.state());
  example.accepted = {-1, 0};
  expect_invalid({"accepted_counts[0] is -1, expected 0 to num_speculative_tokens = 1"},
                 [&] { example.run(example.state()); });

  // Each state of the list counts, and the number of requests wherever it lies.
  example = Example();
  std::vector<float> more(18);
  const MambaState states[] = {
      example.state(),  // and one that has a third slot, but S = 0
      {host_view(more.data(), {2, 3, 3}), ConstTensorView(host_view(more.data(), {2, 3, 1, 3}))}};
  const auto run = [&](const Ints& accepted, const Count& num_active) {
    mamba_state_selective_copy({}, states, RandomWidth({0, 0}).view(), RandomWidth({1, 0}).view(),
                               RandomWidth(accepted).view(), 2, num_active);
  };
  const int32_t one = 1, three = 3;
  run({0, 1}, ConstTensorView(host_view(&one, {1})));  // the second request is padding
  expect_invalid({"accepted_counts[1] is 1, expected 0 to num_speculative_tokens = 0"}, [&] {
    run({0, 1}, {});
  });
  expect_invalid({"num_active is 3, expected 0 to num_requests = 2"}, [&] {
    run({0, 0}, ConstTensorView(host_view(&three, {1})));
  });
}

}  // namespace
}  // namespace heddle
