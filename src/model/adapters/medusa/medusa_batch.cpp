#include "model/adapters/medusa/medusa_batch.h"

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

#include "heddle/ops/activation.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/sampling.h"

namespace heddle::model {
namespace {

constexpr int64_t kMaxSlices = 4;  // products of one call: more take no fewer launches on a GPU

bool on_gpu(const ExecContext& ctx) { return ctx.device.type != DeviceType::kCpu; }

/// y = W x + b of several layers, y f32.
void products(const ExecContext& ctx, std::span<const TensorView> y, const ConstTensorView& x,
              std::span<const MedusaHeads::Layer* const> layers) {
  if (!on_gpu(ctx)) {
    std::array<LinearOutput, kMaxSlices> outputs;
    for (size_t i = 0; i < layers.size(); ++i) {
      outputs[i] = {y[i], layers[i]->weight.matrix.packed(), layers[i]->bias.view()};
    }
    return linear(ctx, std::span(outputs).first(layers.size()), x);
  }
  std::array<LinearSlice, kMaxSlices> slices;
  for (size_t i = 0; i < layers.size(); ++i) {
    slices[i] = layers[i]->weight.matrix.slice(y[i], layers[i]->bias.view());
  }
  linear_site(ctx, std::span(slices).first(layers.size()), x, LinearPath::kDecode);
}

/// That rows can share products by.
auto key_of(const MedusaRow& row) {
  const bool has_base_head = row.head == nullptr && !row.heads->has_outputs();
  return std::tuple(!has_base_head, row.heads, row.head);
}

}  // namespace

bool MedusaBatch::Group::has_base_head() const { return !std::get<0>(key_of(rows.front())); }

MedusaBatch::MedusaBatch(Device device, const DecoderConfig& config, const DecoderWeights& weights,
                         int64_t max_drafts)
    : hidden_size_(config.hidden_size),
      max_drafts_(max_drafts),
      weights_(weights),
      arrays_(device, StagedArrays::bytes_for<int32_t>(max_drafts)),
      x_(device, DType::kFloat32, {max_drafts, hidden_size_}),
      delta_(device, DType::kFloat32, {max_drafts, hidden_size_}),
      ones_(device, DType::kFloat32, {max_drafts, hidden_size_}),
      slots_(device, DType::kInt32, {max_drafts}),
      drawn_(device, DType::kInt32, {max_drafts}),
      tokens_(static_cast<size_t>(max_drafts)) {
  if (device.type != DeviceType::kCpu) {
    rounded_ = DeviceTensor(device, weights.activations, {max_drafts, hidden_size_});
  }
  const std::vector<float> ones(static_cast<size_t>(max_drafts * hidden_size_), 1.0f);
  copy_from_host({.device = device}, ones_.view().raw(), std::as_bytes(std::span(ones)));
  indices_.reserve(static_cast<size_t>(max_drafts));
}

size_t MedusaBatch::workspace_bytes(Device device) const {
  if (device.type == DeviceType::kCpu) {
    return linear_workspace_bytes(max_drafts_, hidden_size_, weights_.product_activations);
  }
  return std::max(linear_site_workspace_bytes(device, max_drafts_, hidden_size_,
                                              kMaxSlices * hidden_size_, kMaxSlices, 0),
                  linear_site_workspace_bytes(device, max_drafts_, hidden_size_,
                                              weights_.output.out_features, 1, 0));
}

/// With the rows of the hidden states that each of them begins with.
void MedusaBatch::make_groups(std::span<MedusaRow> rows) {
  std::ranges::stable_sort(rows, [](const MedusaRow& a, const MedusaRow& b) {
    const auto of_a = key_of(a), of_b = key_of(b);
    return of_a == of_b ? a.num_drafts > b.num_drafts : of_a < of_b;
  });
  groups_.clear();
  indices_.clear();
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && key_of(rows[end]) == key_of(rows[begin])) ++end;
    Group& group = groups_.emplace_back(Group{.rows = rows.subspan(begin, end - begin)});
    group.first.push_back(std::ssize(indices_));
    for (int64_t head = 0; head < group.rows.front().num_drafts; ++head) {
      for (const MedusaRow& row : group.rows) {
        if (row.num_drafts > head) indices_.push_back(row.hidden);
      }
      group.first.push_back(std::ssize(indices_));
    }
  }
  HEDDLE_CHECK(std::ssize(indices_) <= max_drafts_, "Medusa heads shall draft ", indices_.size(),
               " tokens, at most ", max_drafts_, " fit");
}

/// Rows of x as products read them.
TensorView MedusaBatch::input(const ExecContext& ctx, int64_t begin, int64_t count) const {
  const TensorView x = x_.view().narrow(0, begin, count);
  if (!on_gpu(ctx)) return x;
  const TensorView rounded = rounded_.view().narrow(0, begin, count);
  round_to(ctx, rounded, x);
  return rounded;
}

/// In the first layer all heads of a row read the same, so those with as many rows share a call.
void MedusaBatch::run_layer(const ExecContext& ctx, const Group& group, int64_t layer) {
  const MedusaHeads& heads = group.heads();
  const TensorView x = input(ctx, group.begin(), group.count());
  for (int64_t head = 0, end = 0; head < group.num_heads(); head = end) {
    std::array<TensorView, kMaxSlices> y;
    std::array<const MedusaHeads::Layer*, kMaxSlices> layers;
    const int64_t count = group.count_of(head);
    const int64_t most = layer == 0 ? kMaxSlices : 1;
    for (; end < group.num_heads() && end - head < most && group.count_of(end) == count; ++end) {
      const auto i = static_cast<size_t>(end - head);
      y[i] = delta_.view().narrow(0, group.first[static_cast<size_t>(end)], count);
      layers[i] = &heads[end].layers[static_cast<size_t>(layer)];
    }
    const auto num = static_cast<size_t>(end - head);
    const int64_t first = layer == 0 ? group.begin() : group.first[static_cast<size_t>(head)];
    products(ctx, std::span(y).first(num), x.narrow(0, first - group.begin(), count),
             std::span(layers).first(num));
  }
  const auto rows_of = [&](const DeviceTensor& t) {
    return t.view().narrow(0, group.begin(), group.count());
  };
  silu_and_mul(ctx, rows_of(delta_), rows_of(delta_), rows_of(ones_));
  add(ctx, rows_of(x_), rows_of(delta_));
}

/// Of heads with outputs of their own, or of an adapter with a head of its own.
void MedusaBatch::compute_own_logits(const ExecContext& ctx, const Group& group,
                                     const TensorView& logits) const {
  const TensorView x = input(ctx, group.begin(), group.count());
  const LinearActivations activations = weights_.product_activations;
  if (!group.heads().has_outputs()) {
    const VocabularyTable& head = *group.rows.front().head;
    product(ctx, logits, x, head.weight(), activations);
    return head.change_logits(ctx, logits, x, slots_.rows(group.count()));
  }
  for (int64_t i = 0; i < group.num_heads(); ++i) {
    const int64_t first = group.first[static_cast<size_t>(i)] - group.begin();
    const int64_t count = group.count_of(i);
    product(ctx, logits.narrow(0, first, count), x.narrow(0, first, count),
            group.heads()[i].output.matrix, activations);
  }
}

/// And draws. Scales and caps of logits change no order.
void MedusaBatch::compute_logits(const ExecContext& ctx, const TensorView& logits) const {
  const auto draw = [&](int64_t begin, int64_t count, int64_t width, const auto& compute) {
    if (count == 0) return;
    const TensorView rows = logits.narrow(0, begin, count).narrow(1, 0, width);
    compute(rows);
    greedy(ctx, drawn_.view().narrow(0, begin, count), {}, rows);
  };
  const Matrix& base = weights_.output;
  const auto own = std::ranges::find_if_not(groups_, &Group::has_base_head);
  const int64_t num_base = own == groups_.begin() ? 0 : std::prev(own)->first.back();
  draw(0, num_base, base.out_features, [&](const TensorView& rows) {
    product(ctx, rows, input(ctx, 0, num_base), base, weights_.product_activations);
  });
  for (auto group = own; group != groups_.end(); ++group) {
    const bool has_outputs = group->heads().has_outputs();
    const int64_t width = has_outputs ? base.out_features : group->rows.front().head->num_tokens();
    draw(group->begin(), group->count(), width,
         [&](const TensorView& rows) { compute_own_logits(ctx, *group, rows); });
  }
}

void MedusaBatch::draft(const ExecContext& ctx, std::span<MedusaRow> rows,
                        const ConstTensorView& hidden, const TensorView& logits) {
  make_groups(rows);
  if (groups_.empty()) return;
  const int64_t count = std::ssize(indices_);
  arrays_.clear();
  const ConstTensorView indices = arrays_.add(indices_);
  arrays_.copy(ctx);
  heddle::embedding(ctx, x_.rows(count), indices, hidden);  // a plain choice of rows
  for (const Group& group : groups_) {
    for (int64_t layer = 0; layer < group.heads().num_layers(); ++layer) {
      run_layer(ctx, group, layer);
    }
  }
  compute_logits(ctx, logits);
  const auto drawn = std::span(tokens_).first(static_cast<size_t>(count));
  copy_to_host(ctx, drawn, ConstTensorView(drawn_.rows(count)));
  for (const Group& group : groups_) {
    for (int64_t head = 0; head < group.num_heads(); ++head) {
      for (int64_t i = 0; i < group.count_of(head); ++i) {
        const int64_t at = group.first[static_cast<size_t>(head)] + i;
        group.rows[static_cast<size_t>(i)].drafts->push_back(tokens_[static_cast<size_t>(at)]);
      }
    }
  }
}

}  // namespace heddle::model
